"""Aggregates: values, nulls, empty windows, defaults (api 12.6)."""

from __future__ import annotations

from datetime import datetime
from typing import Optional

from tests.conformance.case import AsOf, Case, Log, Step, instant
from umbel.datasets import (
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
    dataset,
    field,
    pipeline,
)
from umbel.dtypes import Continuous
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"

T0, T30 = instant("2024-01-01"), instant("2024-01-01T00:30")
ROWS = [
    {"uid": 1, "amt": 10, "x": 1, "t": T0},
    {"uid": 1, "amt": 0, "x": None, "t": T30},
    {"uid": 1, "amt": 30, "x": 3, "t": T30},
]
AT = [T0, T30, instant("2024-01-01T01:00:01"), instant("2024-01-01T01:30:01")]
BEFORE = instant("2023-12-31")
HOUR = Continuous("1h")


@dataset
class Events:
    uid: int
    amt: int
    x: Optional[int]
    t: datetime


@dataset(index=True)
class Values:
    uid: int = field(key=True)
    count: int
    count_x: int
    unique_x: int
    sum_x: int
    average_amt: float
    average_x: float
    average_none: Optional[float]
    stddev_amt: float
    min_amt: int
    min_none: Optional[int]
    max_amt: int
    last_amt: list[int]
    last_x: list[Optional[int]]
    last_x_known: list[int]
    first_amt: list[int]
    distinct_x: list[Optional[int]]
    distinct_x_known: list[int]
    median: float
    decayed: float
    t: datetime

    @pipeline
    @inputs(Events)
    def values(cls, events):
        return events.groupby("uid").aggregate(
            count=Count(window=HOUR),
            count_x=Count(of="x", dropnull=True, window=HOUR),
            unique_x=Count(of="x", unique=True, approx=True, window=HOUR),
            sum_x=Sum(of="x", window=HOUR),
            average_amt=Average(of="amt", window=HOUR),
            average_x=Average(of="x", window=HOUR),
            average_none=Average(of="x", default=None, window=HOUR),
            stddev_amt=Stddev(of="amt", window=HOUR),
            min_amt=Min(of="amt", default=-1, window=HOUR),
            min_none=Min(of="amt", window=HOUR),
            max_amt=Max(of="amt", default=-1, window=HOUR),
            last_amt=LastK(of="amt", limit=2, dedup=False, window=HOUR),
            last_x=LastK(of="x", limit=2, dedup=True, window=HOUR),
            last_x_known=LastK(of="x", limit=2, dedup=True, dropnull=True, window=HOUR),
            first_amt=FirstK(of="amt", limit=2, dedup=False, dropnull=False, window=HOUR),
            distinct_x=Distinct(of="x", unordered=True, window=HOUR),
            distinct_x_known=Distinct(of="x", unordered=True, dropnull=True, window=HOUR),
            median=Quantile(of="amt", p=0.5, default=0.0, approx=True, window=HOUR),
            decayed=ExpDecaySum(of="amt", half_life="1h", window=HOUR),
        )


EXACT = {
    "count": [1, 3, 2, 0],
    "count_x": [1, 2, 1, 0],
    "unique_x": [1, 3, 2, 0],
    "sum_x": [1, 4, 3, 0],
    "average_amt": [10.0, 40 / 3, 15.0, 0.0],
    "average_x": [1.0, 2.0, 3.0, 0.0],
    "average_none": [1.0, 2.0, 3.0, None],
    "stddev_amt": [0.0, (1400 / 9) ** 0.5, 15.0, -1.0],
    "min_amt": [10, 0, 0, -1],
    "min_none": [10, 0, 0, None],
    "max_amt": [10, 30, 30, -1],
    "last_amt": [[10], [30, 0], [30, 0], []],
    "last_x": [[1], [3, None], [3, None], []],
    "last_x_known": [[1], [3, 1], [3], []],
    "first_amt": [[10], [10, 0], [0, 30], []],
}
DEFAULTS = {"average_amt": 0.0, "average_x": 0.0, "stddev_amt": -1.0, "min_amt": -1, "max_amt": -1, "median": 0.0}
# Sets, and the answers of sketches and of decay, which are close and not exact.
SETS = {"distinct_x": [[1], [1, None, 3], [None, 3], []], "distinct_x_known": [[1], [1, 3], [3], []]}
CLOSE = {
    "median": ([10.0, 10.0, 30.0, 0.0], 0.01),
    "decayed": ([10.0, 37.0711, 2 ** (-1801 / 3600) * 30, 0.0], 1e-3),
}


class Near:
    """Expect sets to be equal and approximate values to be near."""

    def run(self, session):
        found = [row for row, _ in session.lookup("Values", [{"uid": 1}] * len(AT), AT)]
        for name, values in SETS.items():
            assert [set(row[name]) for row in found] == [set(each) for each in values], name
        for name, (values, bound) in CLOSE.items():
            for row, value in zip(found, values, strict=True):
                assert abs(row[name] - value) <= bound * abs(value), (name, row[name], value)


AS_OF = {BEFORE: None, **{moment: [values[n] for values in EXACT.values()] for n, moment in enumerate(AT)}}
PROBES: list[Step] = [AsOf("Values", {"uid": 1}, tuple(EXACT), AS_OF, DEFAULTS), Near()]

CASES = [
    Case("aggregates in one call", [Events, Values], [Log("Events", ROWS), *PROBES]),
    Case("aggregates over several calls", [Events, Values], [*(Log("Events", [row]) for row in ROWS), *PROBES]),
    Case(
        "aggregates, the older row last",
        [Events, Values],
        [Log("Events", ROWS[1:]), Log("Events", ROWS[:1]), *PROBES],
    ),
]
