"""Classes without `@struct` as types of fields, and access by item (api §1.2)."""

import pickle
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar, Dict, List, NamedTuple, Optional, TypedDict

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.connectors import Webhook, source
from umbel.datasets import dataset, field
from umbel.dtypes import Window, struct
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import expectations, inputs, outputs
from umbel.testing import MockClient, log, mock

__owner__ = "team@example.com"

T = datetime(2024, 1, 1, tzinfo=timezone.utc)

W = Webhook(name="w")


class Point:
    x: int
    y: Optional[float]
    kind: ClassVar[str] = "point"


@dataclass(frozen=True)
class Line:
    start: Point
    ends: List[Point]

    def length(self) -> int:
        return len(self.ends)


@source(W.endpoint("Shapes"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Shapes:
    k: int = field(key=True)
    point: Point
    maybe: Optional[Point]
    many: List[Point]
    named: Dict[str, Point]
    line: Line
    t: datetime


A, B = {"x": 1, "y": 2.5}, {"x": 2, "y": None}


@mock
def test_classes_without_struct(client) -> None:
    client.commit(message="m", datasets=[Shapes])
    line = {"start": A, "ends": [A, B]}
    row = {"k": [1], "point": [A], "maybe": [None], "many": [[A, B]], "named": [{"b": B}], "line": [line], "t": [T]}
    client.log("w", "Shapes", pd.DataFrame(row))
    rows, found = Shapes.lookup(pd.Series([T]), k=pd.Series([1]))
    assert found.tolist() == [True]
    got = rows.iloc[0]
    assert isinstance(got["point"], Point)
    assert (got["point"].x, got["point"].y, got["point"]["x"], got["point"].kind) == (1, 2.5, 1, "point")
    assert got["maybe"] is pd.NA
    assert [each.x for each in got["many"]] == [1, 2]
    assert got["many"][1].y is pd.NA
    assert got["named"]["b"].x == 2
    assert (got["line"].length(), got["line"].start) == (2, got["point"])
    assert pickle.loads(pickle.dumps(got["point"])) == got["point"]
    by_hand = Point()
    by_hand.x, by_hand.y = 1, 2.5
    assert got["point"] == by_hand
    client.log("w", "Shapes", pd.DataFrame({**row, "point": [by_hand], "t": [T + timedelta(1)]}))
    with pytest.raises(Exception, match=r"point.*\.x"):
        client.log("w", "Shapes", pd.DataFrame({**row, "point": [{"y": 1.0}]}))


@featureset
class Located:
    point: Point = F()
    where: Optional[Point] = F()
    total: float

    @extractor
    @inputs("point", "where")
    @outputs("total")
    def add(cls, ts, point, where):
        found = [a["x"] + (0 if b is pd.NA else b["x"]) for a, b in zip(point, where, strict=True)]
        return pd.Series(found, dtype=float, name="total")


@mock
def test_struct_inputs_answer_item_access(client) -> None:
    client.commit(message="m", featuresets=[Located])
    frame = pd.DataFrame({"Located.point": [A, B], "Located.where": [B, None]})
    assert client.query([Located.point, Located.where], [Located.total], frame)["Located.total"].tolist() == [3.0, 2.0]


@struct
class Money:
    amount: int
    note: Optional[str]


def test_item_access() -> None:
    five = Money(5, None)
    assert (five["amount"], five["note"]) == (five.amount, five.note)
    for name in ("amout", "as_json", "__class__", 0):
        with refusal(KeyError, "Money", repr(name), at=False):
            five[name]
    with pytest.raises(KeyError):
        list(five)
    span = Window(begin=T, end=T + timedelta(1))
    assert span["end"] - span["begin"] == timedelta(1)
    with refusal(KeyError, "middle", at=False):
        span["middle"]


def test_stand_ins_of_structs_answer_item_access() -> None:
    """Where definitions were read from a catalog, the user's class is not at hand."""
    from umbel.types.dtypes import Int, Struct

    made = Struct("Elsewhere", (("a", Int()),)).make({"a": 3})
    assert (made["a"], made.as_json()) == (3, {"a": 3})


def test_inside_a_struct_it_stays_an_error() -> None:
    with refusal(TypeError, "Holder.point", "Point", "@struct"):

        @struct
        class Holder:
            point: Point

    with refusal(TypeError, "Holder.points"):

        @struct
        class Holder:
            points: List[Point]


class Looped:
    again: Optional["Looped"]


class Bad:
    thing: set


class Row(NamedTuple):
    a: int


class Typed(TypedDict):
    a: int


class Bare:
    pass


@pytest.mark.parametrize(
    ("kind", "word"),
    [(Looped, "itself"), (Bad, "Bad.thing"), (Row, "Row"), (Typed, "Typed"), (Bare, "Bare"), (pd.Series, "Series")],
    ids=str,
)
def test_what_is_no_such_class(kind: Any, word: str) -> None:
    for annotation in (kind, List[kind]):
        with refusal(TypeError, "Some", "thing", word):

            @dataset
            class Some:
                thing: annotation
                t: datetime


def test_expectations_are_methods() -> None:
    with refusal(TypeError, "Point3", "expected", "method"):

        @struct
        class Point3:
            x: int

            @expectations
            def expected(cls):
                return []


def test_log_takes_instances_of_such_classes() -> None:
    client = MockClient()
    client.commit(message="m", datasets=[Shapes])
    point = Point()
    point.x, point.y = 3, None
    line = Line(point, [point])
    frame = pd.DataFrame(
        {"k": [1], "point": [point], "maybe": [point], "many": [[point]], "named": [{}], "line": [line], "t": [T]}
    )
    log(Shapes, frame)
    assert client.get_dataset_df("Shapes")["line"][0] == line
