"""Aggregates: values computed from the rows of a group in a window.

There is one file per family. Each aggregate is an algebra: lift, merge, result.
"""

from typing import Any

from umbel.aggregates.aggregate import AGGREGATES, Aggregate, AggregateType
from umbel.aggregates.count import Count
from umbel.aggregates.decay import ExpDecaySum
from umbel.aggregates.distinct import Distinct
from umbel.aggregates.extremes import Max, Min
from umbel.aggregates.lists import FirstK, LastK
from umbel.aggregates.quantile import Quantile
from umbel.aggregates.stddev import Stddev
from umbel.aggregates.sums import Average, Sum


def __getattr__(name: str) -> Any:
    return AGGREGATES.attribute(name)


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
