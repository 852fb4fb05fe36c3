"""Row-wise operators, on streams and on keyed inputs, where updates and deletes pass through (api 4)."""

from __future__ import annotations

from datetime import datetime
from typing import Optional

from tests.conformance.case import AsOf, Case, Log, Step, Table, instant
from umbel.datasets import dataset, field, pipeline
from umbel.expr import col
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"

T1, T2, T3 = (instant(f"2024-01-0{day}") for day in (1, 2, 3))
BEFORE = instant("2023-12-31")


@dataset
class Events:
    uid: int
    amt: Optional[float]
    tags: list[str]
    t: datetime


@dataset
class Same:
    uid: int
    amt: Optional[float]
    tags: list[str]
    t: datetime

    @pipeline
    @inputs(Events)
    def same(cls, events):
        return events


@dataset
class Known:
    user: int
    amount: float
    is_large: bool
    at: datetime

    @pipeline
    @inputs(Events)
    def known(cls, events):
        return (
            events.drop("tags")
            .dropnull("amt")
            .rename({"uid": "user", "amt": "amount", "t": "at"})
            .assign(is_large=(col("amount") > 10).astype(bool))
        )


@dataset
class Tagged:
    uid: int
    tags: Optional[str]
    t: datetime

    @pipeline
    @inputs(Events)
    def tag(cls, events):
        return events.select("uid", "tags").explode("tags")


@dataset
class Both:
    uid: int
    t: datetime

    @pipeline
    @inputs(Events)
    def both(cls, events):
        small = events.filter(col("amt").fillnull(0.0) < 10.0).select("uid")
        return small + events.select("uid")


@dataset
class Shifted:
    uid: int
    amt: float
    t: datetime

    @pipeline
    @inputs(Events)
    def shift(cls, events):
        def shifted(df):
            return df.drop(columns="tags").assign(amt=df["amt"].fillna(0.0) + df["uid"])

        return events.transform(shifted, schema={"uid": int, "amt": float, "t": datetime})


STREAMS = [Events, Same, Known, Tagged, Both, Shifted]
ROWS = [
    {"uid": 1, "amt": 5.0, "tags": ["a", "b"], "t": T1},
    {"uid": 2, "amt": None, "tags": [], "t": T1},
    {"uid": 1, "amt": 50.0, "tags": ["c"], "t": T2},
]
PROBES: list[Step] = [
    Table("Same", ("uid", "amt", "tags", "t"), [tuple(row.values()) for row in ROWS]),
    Table("Known", ("user", "amount", "is_large", "at"), [(1, 5.0, False, T1), (1, 50.0, True, T2)]),
    Table("Tagged", ("uid", "tags", "t"), [(1, "a", T1), (1, "b", T1), (2, None, T1), (1, "c", T2)]),
    Table("Both", ("uid", "t"), [(1, T1), (1, T1), (2, T1), (2, T1), (1, T2)]),
    Table("Shifted", ("uid", "amt", "t"), [(1, 6.0, T1), (2, 2.0, T1), (1, 51.0, T2)]),
]


@dataset(index=True)
class Users:
    uid: int = field(key=True)
    name: Optional[str]
    age: int
    t: datetime


@dataset(index=True)
class Named:
    id: int = field(key=True)
    name: str
    next_age: int
    t: datetime

    @pipeline
    @inputs(Users)
    def named(cls, users):
        grown = users.filter(col("age") >= 18).rename({"uid": "id"}).dropnull()
        return grown.assign(next_age=(col("age") + 1).astype(int)).drop("age")


TABLES = [Users, Named]
USERS = [
    {"uid": 1, "name": "ann", "age": 17, "t": T1},
    {"uid": 1, "name": "ann", "age": 18, "t": T2},
    {"uid": 1, "name": None, "age": 19, "t": T3},
    {"uid": 2, "name": "bob", "age": 40, "t": T1},
]
KEYED: list[Step] = [
    AsOf("Named", {"id": 1}, ("name", "next_age", "t"), {T1: None, T2: ("ann", 19, T2), T3: None}),
    AsOf("Named", {"id": 2}, ("name", "next_age", "t"), {BEFORE: None, T1: ("bob", 41, T1), T3: ("bob", 41, T1)}),
]

CASES = [
    Case("row-wise operators on a stream", STREAMS, [Log("Events", ROWS), *PROBES]),
    Case("row-wise operators on a stream, row by row", STREAMS, [*(Log("Events", [row]) for row in ROWS), *PROBES]),
    Case("row-wise operators on a keyed input", TABLES, [Log("Users", USERS), *KEYED]),
    Case(
        "row-wise operators on a keyed input, newest first",
        TABLES,
        [*(Log("Users", [row]) for row in reversed(USERS)), *KEYED],
    ),
]
