"""Fields and columns in another order than those they come from: order has no influence on any result (api 17, 4.3)."""

from __future__ import annotations

from datetime import datetime
from typing import Optional

from tests.conformance.case import AsOf, Case, Features, Log, Table, instant
from umbel.datasets import Count, Max, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, Hopping
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"


def minute(n: int) -> datetime:
    return instant(f"2024-01-01T00:{n:02}")


@dataset
class Raw:
    x: int
    y: int
    a: int
    b: int
    c: int
    t: datetime


@dataset(index=True)
class Newest:
    """Keys and values in another order than the pipeline has them."""

    c: int
    b: int
    y: int = field(key=True)
    t: datetime = field(timestamp=True)
    a: int
    x: int = field(key=True)

    @pipeline
    @inputs(Raw)
    def newest(cls, raw):
        return raw.groupby("x", "y").latest()


@dataset(index=True)
class Sums:
    high: int
    total: int
    y: int = field(key=True)
    x: int = field(key=True)
    t: datetime

    @pipeline
    @inputs(Raw)
    def sums(cls, raw):
        window = Hopping("forever", "1m")
        return raw.groupby("x", "y").aggregate(
            total=Sum(of="a", window=window), high=Max(of="b", window=window, default=0)
        )


@dataset(index=True)
class Recent:
    """Answered from tiles."""

    n: int
    y: int = field(key=True)
    s: int
    x: int = field(key=True)
    t: datetime

    @pipeline
    @inputs(Raw)
    def recent(cls, raw):
        window = Continuous("forever")
        return raw.groupby("x", "y").aggregate(s=Sum(of="c", window=window), n=Count(window=window))


@dataset
class Visits:
    p: int
    q: int
    t: datetime


@dataset
class Joined:
    q: int
    c: Optional[int]
    b: Optional[int]
    a: Optional[int]
    p: int
    t: datetime

    @pipeline
    @inputs(Visits, Newest)
    def join(cls, visits, newest):
        return visits.join(newest, how="left", left_on=["p", "q"], right_on=["x", "y"])


@dataset(index=True)
class Both:
    """Two tables joined, as fields of both."""

    high: int
    a: int
    total: int
    c: int
    b: int
    x: int = field(key=True)
    y: int = field(key=True)
    t: datetime = field(timestamp=True)

    @pipeline
    @inputs(Newest, Sums)
    def both(cls, newest, sums):
        return newest.join(sums, how="inner", on=["y", "x"])


@featureset
class OfPair:
    x: int
    y: int
    s: int = F(Recent.s, default=0)
    n: int = F(Recent.n, default=0)
    a: int = F(Newest.a, default=0)
    total: int = F(Sums.total, default=0)


DATASETS = [Raw, Newest, Sums, Recent, Visits, Joined, Both]
NAMES = ("x", "y", "a", "b", "c")
ROWS = [
    {"x": 1, "y": 2, "a": 10, "b": 20, "c": 30, "t": minute(1)},
    {"x": 2, "y": 1, "a": 11, "b": 21, "c": 31, "t": minute(2)},
    {"x": 1, "y": 2, "a": 12, "b": 22, "c": 32, "t": minute(5)},
]
VISITS = [{"q": 2, "p": 1, "t": minute(3)}, {"p": 2, "q": 1, "t": minute(3)}, {"p": 1, "q": 2, "t": minute(6)}]
PROBES = [
    Table(
        "Joined",
        ("p", "q", "a", "b", "c", "t"),
        [(1, 2, 10, 20, 30, minute(3)), (2, 1, 11, 21, 31, minute(3)), (1, 2, 12, 22, 32, minute(6))],
    ),
    AsOf("Newest", {"x": 1, "y": 2}, NAMES, {minute(4): (1, 2, 10, 20, 30), minute(9): (1, 2, 12, 22, 32)}),
    AsOf("Newest", {"y": 1, "x": 2}, ("a", "b", "c"), {minute(1): None, minute(9): (11, 21, 31)}),
    AsOf("Sums", {"y": 2, "x": 1}, ("x", "y", "total", "high"), {minute(4): (1, 2, 10, 20)}),
    AsOf("Recent", {"y": 2, "x": 1}, ("x", "y", "s", "n"), {minute(4): (1, 2, 30, 1), minute(9): (1, 2, 62, 2)}),
    AsOf("Recent", {"x": 2, "y": 1}, ("x", "y", "s", "n"), {minute(9): (2, 1, 31, 1)}),
    AsOf("Both", {"y": 2, "x": 1}, (*NAMES, "total", "high"), {minute(4): (1, 2, 10, 20, 30, 10, 20)}),
]

CASES = [
    Case(
        "fields in another order than the pipeline's columns",
        DATASETS,
        [Log("Raw", ROWS), Log("Visits", VISITS), *PROBES],
    ),
    Case(
        "fields in another order: the table comes last, row by row",
        DATASETS,
        [Log("Visits", VISITS), *(Log("Raw", [dict(reversed(row.items()))]) for row in reversed(ROWS)), *PROBES],
    ),
    Case(
        "features of datasets whose keys are in another order than those of their pipelines",
        [Raw, Newest, Sums, Recent],
        [
            Log("Raw", ROWS),
            Features(
                [{"OfPair.x": 1, "OfPair.y": 2}, {"OfPair.x": 2, "OfPair.y": 1}],
                {"OfPair.s": [62, 31], "OfPair.n": [2, 1], "OfPair.a": [12, 11], "OfPair.total": [10, 11]},
            ),
        ],
        [OfPair],
    ),
]
