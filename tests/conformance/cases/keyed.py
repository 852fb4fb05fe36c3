"""Keyed inputs: updates, deletes by filters, late rows (api 12.3)."""

from __future__ import annotations

from datetime import datetime

from tests.conformance.case import AsOf, Case, Log, Table, instant
from umbel.datasets import Count, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"

JAN1, NOON, JAN2 = instant("2024-01-01"), instant("2024-01-01T12:00"), instant("2024-01-02")
BEFORE, AFTER = instant("2023-12-31"), instant("2024-01-03")


@dataset(index=True)
class K:
    uid: int = field(key=True)
    v: int
    t: datetime


@dataset
class Changes:
    uid: int
    v: int
    d: bool
    t: datetime

    @pipeline
    @inputs(K)
    def changes(cls, k):
        return k.changelog(delete="d")


@dataset
class Inserts:
    uid: int
    v: int
    i: bool
    t: datetime

    @pipeline
    @inputs(K)
    def changes(cls, k):
        return k.changelog(insert="i")


@dataset(index=True)
class ByValue:
    v: int = field(key=True)
    n: int
    t: datetime

    @pipeline
    @inputs(K)
    def count(cls, k):
        return k.groupby("v").aggregate(n=Count(window=Continuous("forever")))


@dataset(index=True)
class Large:
    uid: int = field(key=True)
    v: int
    t: datetime

    @pipeline
    @inputs(K)
    def keep(cls, k):
        return k.filter(col("v") > 1)


DATASETS = [K, Changes, Inserts, ByValue, Large]
ROWS = [{"uid": 1, "v": 2, "t": JAN1}, {"uid": 1, "v": 1, "t": JAN2}, {"uid": 2, "v": 2, "t": JAN1}]
CHANGES = [(1, 2, False, JAN1), (2, 2, False, JAN1), (1, 1, False, JAN2), (1, 2, True, JAN2)]
PROBES = [
    Table("Changes", ("uid", "v", "d", "t"), CHANGES),
    Table("Inserts", ("uid", "v", "i", "t"), [(uid, v, not d, t) for uid, v, d, t in CHANGES]),
    AsOf("ByValue", {"v": 2}, ("n",), {BEFORE: None, JAN1: (2,), NOON: (2,), JAN2: (1,), AFTER: (1,)}),
    AsOf("ByValue", {"v": 1}, ("n",), {NOON: None, JAN2: (1,), AFTER: (1,)}),
    AsOf("Large", {"uid": 1}, ("v",), {BEFORE: None, JAN1: (2,), NOON: (2,), JAN2: None, AFTER: None}),
    AsOf("Large", {"uid": 2}, ("v",), {BEFORE: None, JAN1: (2,), AFTER: (2,)}),
    AsOf("K", {"uid": 1}, ("v", "t"), {BEFORE: None, NOON: (2, JAN1), JAN2: (1, JAN2), AFTER: (1, JAN2)}),
]

LATE = Log("K", [{"uid": 1, "v": 9, "t": NOON}])
AFTERNOON = instant("2024-01-01T18:00")
CORRECTED = [
    AsOf("K", {"uid": 1}, ("v",), {JAN1: (2,), NOON: (9,), AFTERNOON: (9,), JAN2: (1,)}),
    AsOf("Large", {"uid": 1}, ("v",), {JAN1: (2,), NOON: (9,), JAN2: None}),
    AsOf("ByValue", {"v": 2}, ("n",), {JAN1: (2,), NOON: (1,), JAN2: (1,)}),
    Table(
        "Changes", ("uid", "v", "d", "t"), [*CHANGES[:3], (1, 2, True, NOON), (1, 9, False, NOON), (1, 9, True, JAN2)]
    ),
]

CASES = [
    Case("keyed input in one call", DATASETS, [Log("K", ROWS), *PROBES]),
    Case("keyed input over several calls", DATASETS, [*(Log("K", [row]) for row in ROWS), *PROBES]),
    Case("keyed input, newest first", DATASETS, [*(Log("K", [row]) for row in reversed(ROWS)), *PROBES]),
    Case("late row of a key", DATASETS, [Log("K", ROWS), LATE, *CORRECTED]),
    Case("late row of a key first", DATASETS, [LATE, Log("K", ROWS), *CORRECTED]),
    Case(
        "of equal key and timestamp the last row wins",
        DATASETS,
        [
            Log("K", [{"uid": 1, "v": 5, "t": JAN1}, {"uid": 1, "v": 6, "t": JAN1}]),
            AsOf("K", {"uid": 1}, ("v",), {JAN1: (6,)}),
            Log("K", [{"uid": 1, "v": 7, "t": JAN1}]),
            AsOf("K", {"uid": 1}, ("v",), {JAN1: (7,), JAN2: (7,)}),
            AsOf("ByValue", {"v": 7}, ("n",), {JAN1: (1,)}),
            AsOf("ByValue", {"v": 6}, ("n",), {JAN1: None}),
        ],
    ),
]
