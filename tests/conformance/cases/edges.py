"""Values at the edges of what types allow: lists without elements beside lists with one, instants before the epoch."""

from __future__ import annotations

from datetime import datetime
from typing import Optional

from tests.conformance.case import AsOf, Case, Log, Step, Table, instant
from umbel.datasets import Count, LastK, Max, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, Hopping
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"

T1 = instant("2024-01-01")


@dataset
class Baskets:
    uid: int
    items: Optional[list[str]]
    sizes: list[Optional[int]]
    t: datetime


@dataset
class Pieces:
    uid: int
    items: Optional[str]
    sizes: Optional[int]
    t: datetime

    @pipeline
    @inputs(Baskets)
    def pieces(cls, baskets):
        return baskets.explode("items", "sizes")


BASKETS = [
    {"uid": 1, "items": None, "sizes": [7], "t": T1},
    {"uid": 2, "items": ["a"], "sizes": [], "t": T1},
    {"uid": 3, "items": [], "sizes": [], "t": T1},
    {"uid": 4, "items": None, "sizes": [], "t": T1},
    {"uid": 5, "items": ["a", "b"], "sizes": [None, 2], "t": T1},
]
PIECES = Table(
    "Pieces",
    ("uid", "items", "sizes"),
    [(1, None, 7), (2, "a", None), (3, None, None), (4, None, None), (5, "a", None), (5, "b", 2)],
)


@dataset
class Readings:
    uid: int
    value: int
    t: datetime


@dataset(index=True)
class Ever:
    uid: int = field(key=True)
    n: int
    recent: int
    last: list[int]
    t: datetime

    @pipeline
    @inputs(Readings)
    def ever(cls, readings):
        return readings.groupby("uid").aggregate(
            n=Count(window=Continuous("forever")),
            recent=Sum(of="value", window=Continuous("1h")),
            last=LastK(of="value", limit=2, dedup=False, window=Continuous("forever")),
        )


@dataset(index=True)
class Stepped:
    uid: int = field(key=True)
    n: int
    best: int
    t: datetime

    @pipeline
    @inputs(Readings)
    def stepped(cls, readings):
        return readings.groupby("uid").aggregate(
            n=Count(window=Hopping("2h", "1h")), best=Max(of="value", default=0, window=Hopping("forever", "1h"))
        )


def at(text: str) -> datetime:
    return instant(f"19{text}")


READINGS = [
    {"uid": 1, "value": 1, "t": at("05-06-01T23:59:59.999999")},
    {"uid": 1, "value": 2, "t": at("69-12-31T23:30:00")},
    {"uid": 1, "value": 3, "t": at("69-12-31T23:59:59.999999")},
    {"uid": 1, "value": 4, "t": at("70-01-01T00:30:00")},
    {"uid": 1, "value": 5, "t": at("70-01-01T02:00:00")},
]
EVER: list[Step] = [
    Table(
        "Ever",
        ("n", "recent", "last", "t"),
        [
            (1, 1, [1], at("05-06-01T23:59:59.999999")),
            (1, 0, [1], at("05-06-02T01:00:00")),
            (2, 2, [2, 1], at("69-12-31T23:30:00")),
            (3, 5, [3, 2], at("69-12-31T23:59:59.999999")),
            (4, 9, [4, 3], at("70-01-01T00:30:00")),
            (4, 7, [4, 3], at("70-01-01T00:30:01")),
            (4, 4, [4, 3], at("70-01-01T01:00:00")),
            (4, 0, [4, 3], at("70-01-01T01:30:01")),
            (5, 5, [5, 4], at("70-01-01T02:00:00")),
            (5, 0, [5, 4], at("70-01-01T03:00:01")),
        ],
    ),
    AsOf(
        "Ever",
        {"uid": 1},
        ("n", "recent", "t"),
        {
            at("05-06-01T23:59:59"): None,
            at("69-12-31T23:59:59.999998"): (2, 2, at("69-12-31T23:30:00")),
            at("70-01-01T00:00:00"): (3, 5, at("69-12-31T23:59:59.999999")),
            at("99-01-01T00:00:00"): (5, 0, at("70-01-01T03:00:01")),
        },
    ),
    AsOf(
        "Stepped",
        {"uid": 1},
        ("n", "best", "t"),
        {
            at("05-06-01T23:59:59.999999"): None,
            at("05-06-02T00:00:00"): (1, 1, at("05-06-02T00:00:00")),
            at("05-06-02T02:00:00"): (0, 1, at("05-06-02T02:00:00")),
            at("70-01-01T00:00:00"): (2, 3, at("70-01-01T00:00:00")),
            at("70-01-01T01:00:00"): (3, 4, at("70-01-01T01:00:00")),
            at("70-01-01T02:00:00"): (1, 4, at("70-01-01T02:00:00")),
        },
        {"best": 0},
    ),
]

CASES = [
    Case(
        "explode of null and empty lists beside lists of one element",
        [Baskets, Pieces],
        [Log("Baskets", BASKETS), PIECES],
    ),
    Case("windows over rows before and after the epoch", [Readings, Ever, Stepped], [Log("Readings", READINGS), *EVER]),
    Case(
        "windows over rows before and after the epoch, row by row and newest first",
        [Readings, Ever, Stepped],
        [*(Log("Readings", [row]) for row in reversed(READINGS)), *EVER],
    ),
]
