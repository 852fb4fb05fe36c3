"""Aggregates: values computed from the rows of a group in a window. One file per family; each is an algebra."""

from umbel.aggregates.aggregate import Aggregate, AggregateType
from umbel.aggregates.count import Count
from umbel.aggregates.decay import ExpDecaySum
from umbel.aggregates.distinct import Distinct
from umbel.aggregates.extremes import Max, Min
from umbel.aggregates.lists import FirstK, LastK
from umbel.aggregates.quantile import Quantile
from umbel.aggregates.spread import Stddev
from umbel.aggregates.sums import Average, Sum

__all__ = [
    "Aggregate",
    "AggregateType",
    "Average",
    "Count",
    "Distinct",
    "ExpDecaySum",
    "FirstK",
    "LastK",
    "Max",
    "Min",
    "Quantile",
    "Stddev",
    "Sum",
]
