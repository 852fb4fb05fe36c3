"""Types of fields: what they take, what they become, how they are refused (api §1)."""

from datetime import date, datetime, timezone
from decimal import Decimal as Dec
from typing import Any, Dict, List, Optional, Union

import numpy as np
import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, dataset, field
from umbel.dtypes import Decimal, Embedding, between, oneof, regex, struct
from umbel.lib import meta
from umbel.testing import MockClient

webhook = Webhook(name="w")
T0 = datetime(2024, 1, 1)


@struct
class Point:
    x: int
    y: Optional[float]


@struct
class Line:
    name: str
    points: List[Point]
    by_name: Dict[str, Point]
    best: Optional[Point]


def of(T: Any) -> Dataset:
    @source(webhook.endpoint("e"), disorder="1d", cdc="upsert")
    @meta(owner="a@b.co")
    @dataset(index=True)
    class D:
        k: int = field(key=True)
        v: T
        t: datetime = field(timestamp=True)

    return D


def store(T: Any, values: list[Any]) -> pd.Series:
    client = MockClient()
    client.commit("m", datasets=[of(T)])
    df = pd.DataFrame({"k": range(len(values)), "t": [T0] * len(values)})
    df["v"] = pd.Series(values, dtype=object)
    client.log("w", "e", df)
    found, is_found = client.lookup("D", pd.DataFrame({"k": range(len(values))}))
    assert is_found.all()
    all_rows = client.get_dataset_df("D")
    assert list(all_rows.columns) == ["k", "v", "t"]
    assert [str(each) for each in all_rows["v"].tolist()] == [str(each) for each in found["v"].tolist()]
    return found["v"]


def stored(T: Any, *values: Any) -> list[Any]:
    return store(T, list(values)).tolist()


TAKEN = [
    (int, [1, 2.0, "3", np.int32(4), True, -(2**63)], [1, 2, 3, 4, 1, -(2**63)]),
    (float, [1, 2.5, np.float32(0.5)], [1.0, 2.5, 0.5]),
    (bool, [True, False, np.bool_(True)], [True, False, True]),
    (str, ["a", "", "é"], ["a", "", "é"]),
    (str, [1, 2.5, True], ["1", "2.5", "True"]),
    (bytes, [b"ab", b""], [b"ab", b""]),
    (date, [date(2024, 1, 2)], [date(2024, 1, 2)]),
    (datetime, [datetime(2024, 1, 2)], [pd.Timestamp("2024-01-02", tz="UTC")]),
    (
        Decimal[2],
        [Dec("1.50"), 3, 2.346, Dec("1.5"), -1],
        [Dec("1.50"), Dec("3.00"), Dec("2.35"), Dec("1.50"), Dec("-1.00")],
    ),
    (List[int], [[1, 2], [], np.array([3])], [[1, 2], [], [3]]),
    (list[int], [[1, 2.0]], [[1, 2]]),
    (List[Optional[int]], [[1, None]], [[1, pd.NA]]),
    (Optional[List[Optional[str]]], [["a", None], None], [["a", pd.NA], pd.NA]),
    (Dict[str, int], [{"a": 1}, {}, [("b", 2)]], [{"a": 1}, {}, {"b": 2}]),
    (Dict[str, List[float]], [{"a": [1.5]}], [{"a": [1.5]}]),
    (Optional[int], [1, None, float("nan"), pd.NA], [1, pd.NA, pd.NA, pd.NA]),
    (Union[int, None], [None, 3], [pd.NA, 3]),
    (int | None, [None, 3], [pd.NA, 3]),
    (Optional[str], ["a", None, pd.NA, float("nan")], ["a", pd.NA, pd.NA, pd.NA]),
    (Optional[bool], [True, None], [True, pd.NA]),
    (Optional[datetime], [None, datetime(2024, 1, 1)], [pd.NaT, pd.Timestamp("2024-01-01", tz="UTC")]),
    (Embedding[3], [[1, 2, 3], np.array([0.5, 1, 2])], [[1.0, 2.0, 3.0], [0.5, 1.0, 2.0]]),
    (oneof(int, [1, 2]), [1, 2.0], [1, 2]),
    (oneof(str, ["a", "b"]), ["b", "a"], ["b", "a"]),
    (between(int, 1, 5), [1, 5], [1, 5]),
    (between(float, 0, 1), [0, 1, 0.5], [0.0, 1.0, 0.5]),
    (between(float, 0.0, 1.0, strict_min=True), [1, 0.5], [1.0, 0.5]),
    (regex("[a-c]+"), ["abcX", "a"], ["abcX", "a"]),
    (List[regex("a")], [["a1", "a"]], [["a1", "a"]]),
    (Dict[str, oneof(int, [1])], [{"a": 1}], [{"a": 1}]),
    (Optional[between(int, 1, 2)], [1, None], [1, pd.NA]),
]


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) or isinstance(other, dict | list):
        return bool(one == other)
    return bool((one is pd.NA or one is pd.NaT) and one is other) or (type(one) is type(other) and bool(one == other))


@pytest.mark.parametrize(("T", "values", "expected"), TAKEN, ids=lambda each: str(each)[:40])
def test_taken(T: Any, values: list[Any], expected: list[Any]) -> None:
    found = [plain(each) for each in stored(T, *values)]
    for one, other in zip(found, expected, strict=True):
        assert same(one, other), (one, other)


REFUSED = [
    (int, 1.5, "int"),
    (int, "x", "int"),
    (int, "1.5", "int"),
    (int, 2**63, "int"),
    (int, None, "int"),
    (float, "x", "float"),
    (bool, "x", "bool"),
    (bool, 2, "bool"),
    (bytes, 1, "bytes"),
    (date, "x", "date"),
    (datetime, "x", "datetime"),
    (Decimal[2], Dec("1.005"), "lose data"),
    (Decimal[2], "x", "Decimal"),
    (List[int], [1.5], "List"),
    (List[int], [None], "List"),
    (List[int], 5, "List"),
    (Dict[str, int], {"a": "x"}, "Dict"),
    (Dict[str, int], {1: 1}, "Dict"),
    (Dict[str, int], 5, "Dict"),
    (Embedding[3], [1, 2], "Embedding"),
    (Embedding[3], [1, 2, None], "Embedding"),
    (oneof(int, [1, 2]), 3, "oneof"),
    (oneof(str, ["a"]), "b", "oneof"),
    (between(int, 1, 5), 6, "between"),
    (between(float, 0.0, 1.0, strict_min=True), 0, "between"),
    (between(int, 1, 5, False, True), 5, "between"),
    (regex("[a-c]+"), "xa", "regex"),
    (List[regex("a")], ["b"], "regex"),
    (Dict[str, oneof(int, [1])], {"a": 2}, "oneof"),
    (Optional[between(int, 1, 2)], 3, "between"),
    (Point, {"x": "q", "y": None}, "Point"),
    (Point, {"y": 1.0}, "Point"),
    (Point, 5, "Point"),
]


@pytest.mark.parametrize(("T", "value", "word"), REFUSED, ids=lambda each: str(each)[:40])
def test_refused(T: Any, value: Any, word: str) -> None:
    with refusal(ValueError, "Schema validation failed during data insertion to D", "v", word, "row 0"):
        stored(T, value)


def test_dtypes_of_columns() -> None:
    kinds = {
        int: "Int64", float: "Float64", bool: "boolean", str: "string", datetime: "datetime64[ns, UTC]",
        Decimal[2]: "object", List[int]: "object", Point: "object", date: "object",
    }  # fmt: skip
    samples = {
        int: 1, float: 1.5, bool: True, str: "a", datetime: T0, Decimal[2]: Dec("1.50"), List[int]: [1],
        Point: Point(1, None), date: date(2024, 1, 1),
    }  # fmt: skip
    assert {T: str(store(T, [samples[T]]).dtype) for T in kinds} == kinds


def test_structs() -> None:
    line = Line("l", [Point(1, 2.0), Point(x=2, y=None)], {"p": Point(3, 3)}, None)
    found = stored(Line, line, line.as_json(), {"name": "q", "points": [], "by_name": {}})
    assert found[0] == line
    assert found[1] == line
    assert type(found[0]).__name__ == "Line"
    assert isinstance(found[0].points[0], Point)
    assert isinstance(found[0].by_name["p"], Point)
    assert found[0].best is pd.NA
    assert found[0].points[1].y is pd.NA
    assert found[2].points == []
    assert line.as_json() == {
        "name": "l",
        "points": [{"x": 1, "y": 2.0}, {"x": 2, "y": None}],
        "by_name": {"p": {"x": 3, "y": 3}},
        "best": None,
    }

    class Like:
        x = 1
        y = 2.0

    assert Point(1, 2.0) == Like()
    assert Point(1, 2.0) == Point(x=1, y=2.0)
    assert Point(1, 2.0) != Point(1, 3.0)
    assert Point(1, 2.0) != 5


def test_a_struct_may_be_key() -> None:
    @source(webhook.endpoint("e"), disorder="1d", cdc="upsert")
    @meta(owner="a@b.co")
    @dataset(index=True)
    class ByPoint:
        p: Point = field(key=True)
        v: int
        t: datetime

    client = MockClient()
    client.commit("m", [ByPoint])
    client.log("w", "e", pd.DataFrame({"p": [Point(1, 2.0), Point(1, None)], "v": [1, 2], "t": [T0, T0]}))
    rows, found = client.lookup(ByPoint, pd.DataFrame({"p": [Point(1, None), Point(1, 2.0), {"x": 5, "y": 1.0}]}))
    assert found.tolist() == [True, True, False]
    assert rows["v"].tolist() == [2, 1, pd.NA]
    assert rows["p"].tolist()[:2] == [Point(1, None), Point(1, 2.0)] or isinstance(rows["p"][0], Point)


EPOCH = pd.Timestamp("2020-01-01T00:00:00Z")
INSTANTS = [
    1577836800, 1577836800.0, 1577836800000, 1577836800000000, 1577836800000000000, "1577836800", "1577836800000",
    "2020-01-01", "2020-01-01T00:00:00", "2020-01-01 00:00:00", "2020-01-01T00:00:00Z", "2020-01-01T01:00:00+01:00",
    "2020-01-01T00:00:00.000000Z", "Wed, 01 Jan 2020 00:00:00 +0000", "Wed, 01 Jan 2020 00:00:00 GMT",
    "31 Dec 2019 19:00:00 EST", datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=timezone.utc), date(2020, 1, 1),
    pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01 01:00", tz="Europe/Paris"), np.datetime64("2020-01-01"),
]  # fmt: skip


@pytest.mark.parametrize("value", INSTANTS, ids=repr)
def test_instants(value: Any) -> None:
    assert stored(datetime, value) == [EPOCH]


def test_instants_as_columns() -> None:
    client = MockClient()
    client.commit("m", [of(datetime)])
    for column in (
        pd.Series([1577836800]),
        pd.Series([1577836800000.0]),
        pd.Series(["2020-01-01"]),
        pd.Series(pd.to_datetime(["2020-01-01"])),
        pd.Series(pd.to_datetime(["2020-01-01 05:30"]).tz_localize("Asia/Kolkata")),
        pd.Series([date(2020, 1, 1)]),
        pd.Series([1577836800], dtype="int32"),
    ):
        client.log("w", "e", pd.DataFrame({"k": [1], "v": column, "t": column}))
        assert client.get_dataset_df("D")["v"].tolist()[-1] == EPOCH
        assert client.get_dataset_df("D")["t"].tolist()[-1] == EPOCH
