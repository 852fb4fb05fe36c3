"""latest, first and dedup: which row of several stays (api 12.7)."""

from __future__ import annotations

from datetime import datetime

from tests.conformance.case import AsOf, Case, Log, Step, Table, instant
from umbel.datasets import dataset, field, pipeline
from umbel.dtypes import Session, Tumbling
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"

JAN1, JAN2, LONG_AGO = instant("2024-01-01"), instant("2024-01-02"), instant("2023-01-01")
ROWS = [{"uid": 1, "v": v, "t": t} for v, t in ((1, JAN1), (2, JAN1), (3, JAN2), (4, JAN2))]
LATE = [{"uid": 1, "v": 0, "t": LONG_AGO}]


@dataset
class Events:
    uid: int
    v: int
    t: datetime


@dataset(index=True)
class Latest:
    uid: int = field(key=True)
    v: int
    t: datetime

    @pipeline
    @inputs(Events)
    def choose(cls, events):
        return events.groupby("uid").latest()


@dataset(index=True)
class First:
    uid: int = field(key=True)
    v: int
    t: datetime

    @pipeline
    @inputs(Events)
    def choose(cls, events):
        return events.groupby("uid").first()


@dataset
class Once:
    uid: int
    v: int
    t: datetime

    @pipeline
    @inputs(Events)
    def choose(cls, events):
        return events.dedup("uid")


@dataset
class OncePerWeek:
    uid: int
    v: int
    t: datetime

    @pipeline
    @inputs(Events)
    def choose(cls, events):
        return events.dedup("uid", window=Tumbling("7d"))


@dataset
class OncePerSession:
    uid: int
    v: int
    t: datetime

    @pipeline
    @inputs(Events)
    def choose(cls, events):
        return events.dedup("uid", window=Session("1d"))


@dataset
class OncePerInstant:
    """Has no column but the timestamp."""

    t: datetime

    @pipeline
    @inputs(Events)
    def choose(cls, events):
        return events.drop("uid", "v").dedup()


DATASETS = [Events, Latest, First, Once, OncePerWeek, OncePerSession, OncePerInstant]
ALL = ("uid", "v", "t")
PROBES: list[Step] = [
    AsOf("Latest", {"uid": 1}, ("v",), {LONG_AGO: None, JAN1: (2,), JAN2: (4,)}),
    AsOf("First", {"uid": 1}, ("v", "t"), {LONG_AGO: None, JAN1: (1, JAN1), JAN2: (1, JAN1)}),
    Table("Once", ALL, [(1, 2, JAN1), (1, 4, JAN2)]),
    Table("OncePerWeek", ALL, [(1, 4, JAN2)]),
    Table("OncePerSession", ALL, [(1, 2, JAN1), (1, 4, JAN2)]),
    Table("OncePerInstant", ("t",), [(JAN1,), (JAN2,)]),
]
WITH_LATE: list[Step] = [
    AsOf("Latest", {"uid": 1}, ("v",), {LONG_AGO: (0,), JAN1: (2,), JAN2: (4,)}),
    AsOf("First", {"uid": 1}, ("v", "t"), {LONG_AGO: (0, LONG_AGO), JAN2: (0, LONG_AGO)}),
    Table("Once", ALL, [(1, 0, LONG_AGO), (1, 2, JAN1), (1, 4, JAN2)]),
    Table("OncePerWeek", ALL, [(1, 0, LONG_AGO), (1, 4, JAN2)]),
    Table("OncePerSession", ALL, [(1, 0, LONG_AGO), (1, 2, JAN1), (1, 4, JAN2)]),
    Table("OncePerInstant", ("t",), [(LONG_AGO,), (JAN1,), (JAN2,)]),
]

CASES = [
    Case("choices in one call", DATASETS, [Log("Events", ROWS), *PROBES, Log("Events", LATE), *WITH_LATE]),
    Case("choices over several calls", DATASETS, [*(Log("Events", [row]) for row in ROWS), *PROBES]),
    Case("choices, the late row first", DATASETS, [Log("Events", LATE), Log("Events", ROWS), *WITH_LATE]),
]
