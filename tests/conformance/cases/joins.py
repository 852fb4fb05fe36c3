"""Joins: stream with table, table with table (api 4.3)."""

from __future__ import annotations

from datetime import datetime
from typing import Optional

from tests.conformance.case import AsOf, Case, Log, Table, instant
from umbel.datasets import dataset, field, pipeline
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"


def jan(day: int) -> datetime:
    return instant(f"2024-01-{day:02}")


BEFORE = instant("2023-12-31T23:59:59")
RIGHT_ROWS = [{"uid": 1, "v": 100, "rt": jan(2)}, {"uid": 1, "v": 200, "rt": jan(4)}]
LEFT_ROWS = [
    {"uid": 1, "t": BEFORE},
    *({"uid": 1, "t": jan(day)} for day in (1, 2, 3, 4, 6)),
    {"uid": 2, "t": jan(4)},
]
LATE = [{"uid": 2, "v": 7, "rt": jan(1)}]


@dataset(index=True)
class Right:
    uid: int = field(key=True)
    v: int
    rt: datetime = field(timestamp=True)


@dataset
class Events:
    uid: int
    t: datetime


@dataset
class Left:
    uid: int
    v: Optional[int]
    t: datetime

    @pipeline
    @inputs(Events, Right)
    def join(cls, events, right):
        return events.join(right, how="left", on=["uid"])


@dataset
class Inner:
    uid: int
    v: int
    t: datetime

    @pipeline
    @inputs(Events, Right)
    def join(cls, events, right):
        return events.join(right, how="inner", on=["uid"])


@dataset
class Within:
    uid: int
    v: Optional[int]
    rt: Optional[datetime]
    t: datetime

    @pipeline
    @inputs(Events, Right)
    def join(cls, events, right):
        return events.join(right, how="left", on=["uid"], within=("1d", "1d"), fields=["v", "rt"])


@dataset
class InnerWithin:
    uid: int
    v: int
    t: datetime

    @pipeline
    @inputs(Events, Right)
    def join(cls, events, right):
        return events.join(right, how="inner", on=["uid"], within=("1d", "1d"))


STREAM = [Right, Events, Left, Inner, Within, InnerWithin]

MATCHES = {BEFORE: None, jan(1): None, jan(2): 100, jan(3): 100, jan(4): 200, jan(6): 200}
WITHIN = {
    BEFORE: (None, None),
    jan(1): (100, jan(2)),
    jan(2): (100, jan(2)),
    jan(3): (200, jan(4)),
    jan(4): (200, jan(4)),
    jan(6): (None, None),
}


def joined(last: int | None) -> list[Table]:
    """What the stream is joined with; `last` is the match of the row of user 2."""
    found = [(1, v, t) for t, v in MATCHES.items() if v is not None]
    nearby = [(1, v, t) for t, (v, _) in WITHIN.items() if v is not None]
    matched = [] if last is None else [(2, last, jan(4))]
    return [
        Table("Left", ("uid", "v", "t"), [*((1, v, t) for t, v in MATCHES.items()), (2, last, jan(4))]),
        Table("Inner", ("uid", "v", "t"), [*found, *matched]),
        Table(
            "Within",
            ("uid", "v", "rt", "t"),
            [*((1, v, rt, t) for t, (v, rt) in WITHIN.items()), (2, None, None, jan(4))],
        ),
        Table("InnerWithin", ("uid", "v", "t"), nearby),
    ]


LEFT_COLUMNS = ("k", "r", "v", "t")


@dataset(index=True)
class L:
    k: int = field(key=True)
    r: int
    t: datetime


@dataset(index=True)
class R:
    r: int = field(key=True)
    v: int
    t: datetime


@dataset(index=True)
class LR:
    k: int = field(key=True)
    r: int
    v: Optional[int]
    t: datetime

    @pipeline
    @inputs(L, R)
    def join(cls, left, right):
        return left.join(right, how="left", on=["r"])


@dataset(index=True)
class LRInner:
    k: int = field(key=True)
    r: int
    v: int
    t: datetime

    @pipeline
    @inputs(L, R)
    def join(cls, left, right):
        return left.join(right, how="inner", on=["r"])


@dataset(index=True)
class LRKnown:
    """Has no column of the right side."""

    k: int = field(key=True)
    r: int
    t: datetime

    @pipeline
    @inputs(L, R)
    def join(cls, left, right):
        return left.join(right, how="inner", on=["r"], fields=[])


TABLE = [L, R, LR, LRInner, LRKnown]
L_ROWS = [{"k": 1, "r": 7, "t": jan(1)}, {"k": 1, "r": 8, "t": jan(10)}, {"k": 2, "r": 7, "t": jan(4)}]
R_ROWS = [{"r": 7, "v": 70, "t": jan(3)}, {"r": 7, "v": 71, "t": jan(5)}, {"r": 8, "v": 80, "t": jan(12)}]
SPANS = [
    (1, 7, None, jan(1)),
    (1, 7, 70, jan(3)),
    (1, 7, 71, jan(5)),
    (1, 8, None, jan(10)),
    (1, 8, 80, jan(12)),
    (2, 7, 70, jan(4)),
    (2, 7, 71, jan(5)),
]
PROBES = [
    Table("LR", LEFT_COLUMNS, SPANS),
    Table("LRInner", LEFT_COLUMNS, [row for row in SPANS if row[2] is not None]),
    AsOf(
        "LR",
        {"k": 1},
        ("r", "v"),
        {
            instant("2023-12-31"): None,
            jan(2): (7, None),
            jan(3): (7, 70),
            jan(4): (7, 70),
            jan(9): (7, 71),
            jan(10): (8, None),
            jan(12): (8, 80),
        },
    ),
    AsOf(
        "LRInner",
        {"k": 1},
        ("r", "v"),
        {jan(2): None, jan(3): (7, 70), jan(9): (7, 71), jan(10): None, jan(11): None, jan(12): (8, 80)},
    ),
    Table("LRKnown", ("k", "r", "t"), [(k, r, t) for k, r, v, t in SPANS if v is not None]),
    AsOf("LRKnown", {"k": 1}, ("r",), {jan(2): None, jan(3): (7,), jan(9): (7,), jan(10): None, jan(12): (8,)}),
    AsOf("LRInner", {"k": 2}, ("r", "v"), {jan(3): None, jan(4): (7, 70), jan(5): (7, 71), jan(20): (7, 71)}),
]

CASES = [
    Case("join of a stream with a table", STREAM, [Log("Right", RIGHT_ROWS), Log("Events", LEFT_ROWS), *joined(None)]),
    Case(
        "join of a stream with a table: the table comes last",
        STREAM,
        [Log("Events", LEFT_ROWS), Log("Right", RIGHT_ROWS), *joined(None)],
    ),
    Case(
        "join of a stream with a table: late rows of the table correct the result",
        STREAM,
        [Log("Right", RIGHT_ROWS), Log("Events", LEFT_ROWS), *joined(None), Log("Right", LATE), *joined(7)],
    ),
    Case(
        "join of a stream with a table: row by row, newest first",
        STREAM,
        [
            *(Log("Events", [row]) for row in reversed(LEFT_ROWS)),
            *(Log("Right", [row]) for row in reversed([*RIGHT_ROWS, *LATE])),
            *joined(7),
        ],
    ),
    Case("join of tables", TABLE, [Log("L", L_ROWS), Log("R", R_ROWS), *PROBES]),
    Case("join of tables: the right side first", TABLE, [Log("R", R_ROWS), Log("L", L_ROWS), *PROBES]),
    Case(
        "join of tables: row by row, newest first",
        TABLE,
        [*(Log("R", [row]) for row in reversed(R_ROWS)), *(Log("L", [row]) for row in reversed(L_ROWS)), *PROBES],
    ),
]
