"""§1.2, §4.4, §5 amended: classes without `@struct`, item access, keys of groupby, defaults of Min and Max."""

import pickle
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal as PythonDecimal
from typing import Any, ClassVar, Dict, List, NamedTuple, Optional, TypedDict

import pandas as pd
import pytest

from tests.unit.rules.refusals import refused
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, Max, Min, dataset, field, pipeline
from umbel.dtypes import Continuous, Decimal, Hopping, Tumbling, Window, struct
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
        with refused(KeyError, "Money", repr(name), at=False):
            five[name]
    with pytest.raises(KeyError):
        list(five)
    span = Window(begin=T, end=T + timedelta(1))
    assert span["end"] - span["begin"] == timedelta(1)
    with refused(KeyError, "middle", at=False):
        span["middle"]


def test_stand_ins_of_structs_answer_item_access() -> None:
    """Where definitions were read from a catalog, the user's class is not at hand."""
    from umbel.types.dtypes import Int, Struct

    made = Struct("Elsewhere", (("a", Int()),)).make({"a": 3})
    assert (made["a"], made.as_json()) == (3, {"a": 3})


def test_inside_a_struct_it_stays_an_error() -> None:
    with refused(TypeError, "Holder.point", "Point", "@struct"):

        @struct
        class Holder:
            point: Point

    with refused(TypeError, "Holder.points"):

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
        with refused(TypeError, "Some", "thing", word):

            @dataset
            class Some:
                thing: annotation
                t: datetime


def test_expectations_are_methods() -> None:
    with refused(TypeError, "Point3", "expected", "method"):

        @struct
        class Point3:
            x: int

            @expectations
            def expected(cls):
                return []


@source(W.endpoint("Sales"), disorder="1d", cdc="append")
@dataset
class Sales:
    k: int
    o: Optional[int]
    n: int
    f: float
    d: Decimal[2]
    day: date
    at: datetime
    t: datetime = field(timestamp=True)


def test_keys_of_groupby_are_not_optional() -> None:
    with refused(TypeError, "'o'", "Optional[int]"):

        @dataset
        class ByOptional:
            o: int = field(key=True)
            n: int
            t: datetime

            @pipeline
            @inputs(Sales)
            def p(cls, sales: Dataset):
                return sales.groupby("o").aggregate(n=Count(window=Continuous("1d")))


@pytest.mark.parametrize("window", [None, Tumbling("1d")])
def test_optional_keys_beside_others(window) -> None:
    with refused(TypeError, "'o'", "Optional[int]"):

        @dataset
        class ByBoth:
            k: int = field(key=True)
            t: datetime

            @pipeline
            @inputs(Sales)
            def p(cls, sales: Dataset):
                return sales.groupby("k", "o", window=window).first()


@pytest.mark.parametrize("method", ["filter", "assign", "dedup", "agregate", "groupby", "join"])
def test_what_follows_groupby(method: str) -> None:
    with refused(AttributeError, method, "first"):

        @dataset
        class Of:
            k: int = field(key=True)
            t: datetime

            @pipeline
            @inputs(Sales)
            def p(cls, sales: Dataset):
                return getattr(sales.groupby("k"), method)()


NOON = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)


def _extreme(aggregate, column: str, kind: Any, default: Any, window: Any):
    @dataset(index=True)
    class Out:
        k: int = field(key=True)
        v: kind
        t: datetime = field(timestamp=True)

        @pipeline
        @inputs(Sales)
        def p(cls, sales: Dataset):
            return sales.groupby("k").aggregate(v=aggregate(of=column, default=default, window=window))

    return Out


TAKEN = [
    ("n", int, 3, 3), ("n", int, 2.0, 2), ("n", int, -0.0, 0),
    ("f", float, 3, 3.0), ("f", float, 1.5, 1.5), ("f", float, PythonDecimal("1.25"), 1.25),
    ("d", Decimal[2], 3, PythonDecimal("3.00")), ("d", Decimal[2], 1.239, PythonDecimal("1.24")),
    ("d", Decimal[2], PythonDecimal("1.5"), PythonDecimal("1.50")),
    ("d", Decimal[2], PythonDecimal("1.239"), PythonDecimal("1.24")),
    ("day", date, date(2020, 1, 1), date(2020, 1, 1)), ("at", datetime, NOON, pd.Timestamp(NOON)),
]  # fmt: skip


@pytest.mark.parametrize("aggregate", [Min, Max])
@pytest.mark.parametrize("window", [Continuous("1h"), Tumbling("1h"), Hopping("forever", "1h")], ids=str)
@pytest.mark.parametrize(("column", "kind", "default", "shown"), TAKEN)
def test_defaults_of_extremes(aggregate, window, column: str, kind: Any, default: Any, shown: Any) -> None:
    out = _extreme(aggregate, column, kind, default, window)
    client = MockClient()
    client.commit(message="m", datasets=[Sales, out])
    row = {"k": [1], "o": [1], "n": [7], "f": [7.0], "d": [7], "day": [date(2024, 1, 1)], "at": [T]}
    client.log("w", "Sales", pd.DataFrame({**row, "t": [T]}))
    client.log("w", "Sales", pd.DataFrame({**row, "k": [2], "t": [T + timedelta(hours=5)]}))
    at = pd.Series([T + timedelta(hours=2), T - timedelta(1), T])
    rows, found = out.lookup(at, k=pd.Series([1, 1, 9]))
    retained = window == Hopping("forever", "1h")
    assert found.tolist() == [True, False, False]
    expected = [shown] * 3
    got = rows["v"].tolist()
    assert got[retained:] == expected[retained:]
    assert [str(each) for each in got[retained:]] == [str(each) for each in expected[retained:]]
    if kind is int:
        assert all(type(each) is int for each in got)


REFUSED = [
    ("n", int, 1.5), ("n", int, True), ("n", int, "1"), ("n", int, PythonDecimal(1)), ("n", int, float("nan")),
    ("n", int, float("inf")), ("f", float, "1"), ("f", float, True), ("d", Decimal[2], "1"), ("d", Decimal[2], True),
    ("d", Decimal[2], float("nan")), ("d", Decimal[2], PythonDecimal(10) ** 27), ("day", date, NOON), ("day", date, 1),
    ("day", date, "2020-01-01"), ("at", datetime, date(2020, 1, 1)), ("at", datetime, 0), ("at", datetime, "2020-01-01"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "kind", "default"), REFUSED)
def test_defaults_of_extremes_refused(column: str, kind: Any, default: Any) -> None:
    with refused(TypeError, "Min", f"'{column}'", repr(default)):
        _extreme(Min, column, kind, default, Continuous("1h"))


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
