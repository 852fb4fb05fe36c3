"""Compatibility module: the names of `umbel.datasets`, at their older import path."""

from umbel.datasets import Dataset, Field, Pipeline, dataset, field, index, on_demand, pipeline

__all__ = ["Dataset", "Field", "Pipeline", "dataset", "field", "index", "on_demand", "pipeline"]
