"""Datasets: declare them, index them, compute them by pipelines and aggregates."""

from umbel.aggregates import (
    AggregateType,
    Average,
    Count,
    Distinct,
    ExpDecaySum,
    FirstK,
    LastK,
    Max,
    Min,
    Quantile,
    Stddev,
    Sum,
)
from umbel.api.dataset import Dataset, dataset, index
from umbel.api.field import Field, field
from umbel.api.on_demand import on_demand
from umbel.api.pipeline import Pipeline, pipeline

__all__ = [
    "AggregateType",
    "Average",
    "Count",
    "Dataset",
    "Distinct",
    "ExpDecaySum",
    "Field",
    "FirstK",
    "LastK",
    "Max",
    "Min",
    "Pipeline",
    "Quantile",
    "Stddev",
    "Sum",
    "dataset",
    "field",
    "index",
    "on_demand",
    "pipeline",
]
