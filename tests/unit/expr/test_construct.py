"""Constructors: datetime, from_epoch, repeat, make_struct and zip."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Optional

import pytest

from tests.unit.expr.table import check, fails, refused
from umbel.expr import Expr, InvalidExprException, col, from_epoch, lit, make_struct, repeat, var, when, zip_struct
from umbel.expr import datetime as moment
from umbel.types.restrictions import between, oneof, regex
from umbel.types.structs import struct


@struct
class Point:
    x: float
    y: str | None


@struct
class Line:
    start: Point
    names: list[str]


@struct
class Mark:
    n: between(int, 0, 5)
    of: Optional[oneof(str, ["x", "y"])]
    r: regex("a+$")


A = col("a")
INTS = {"a": (int, [2, 0])}
NULLS = {"a": (Optional[int], [1, None])}
MIXED = {"a": (int, [1, 2]), "s": (Optional[str], ["x", None])}
MARK = Mark.expr(n=A, of=col("s"), r=col("r"))  # type: ignore[attr-defined]
MARKS = Mark.zip(n=A, of=col("s"), r=col("r"))  # type: ignore[attr-defined]
MARKED = {"a": (int, [0, 5]), "s": (Optional[str], ["x", None]), "r": (str, ["a", "aa"])}
LISTED = {"a": (list[int], [[0, 9], []]), "s": (list[Optional[str]], [[None], ["z"]]), "r": (list[str], [["a"], []])}
LISTS = {"a": (list[int], [[1, 2, 3], [], [4]]), "s": (list[str], [["x", "y"], ["z"], ["w"]])}
POINT = Point.expr(x=A, y=col("s"))  # type: ignore[attr-defined]

CASES: list[tuple[Expr, Any, Any, list[Any]]] = [
    (moment(2024, 2, 29), INTS, datetime, [datetime(2024, 2, 29, tzinfo=UTC)] * 2),
    (moment(2024, 2, 29, 1, 2, 3, 4, timezone="Asia/Tokyo"), {"a": (int, [1])}, datetime,
     [datetime(2024, 2, 28, 16, 2, 3, 4, tzinfo=UTC)]),
    (from_epoch(A, "second"), INTS, datetime, [datetime(1970, 1, 1, 0, 0, s, tzinfo=UTC) for s in (2, 0)]),
    (from_epoch(A, "millisecond"), {"a": (int, [-1])}, datetime,
     [datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)]),
    (from_epoch(A, "microsecond"), NULLS, Optional[datetime], [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), None]),
    (from_epoch(lit(86400), unit="second").dt.day, INTS, int, [2, 2]),
    (repeat(A, 2), INTS, list[int], [[2, 2], [0, 0]]),
    (repeat("x", A), INTS, list[str], [["x", "x"], []]),
    (repeat(A, 2), NULLS, list[int | None], [[1, 1], [None, None]]),
    (repeat(lit([1], list[int]), A), INTS, list[list[int]], [[[1], [1]], []]),
    (repeat(POINT, 2), {"a": (int, [1]), "s": (str, ["q"])}, list[Point], [[{"x": 1.0, "y": "q"}] * 2]),
    (POINT, MIXED, Point, [{"x": 1.0, "y": "x"}, {"x": 2.0, "y": None}]),
    (make_struct({"y": None, "x": A}, Point), INTS, Point, [{"x": 2.0, "y": None}, {"x": 0.0, "y": None}]),
    (make_struct({"start": POINT, "names": lit(["n"], list[str])}, Line), {"a": (int, [1]), "s": (str, ["q"])}, Line,
     [{"start": {"x": 1.0, "y": "q"}, "names": ["n"]}]),
    (POINT.struct.get("x"), MIXED, float, [1.0, 2.0]),
    (zip_struct({"x": A, "y": col("s")}, Point), LISTS, list[Point],
     [[{"x": 1.0, "y": "x"}, {"x": 2.0, "y": "y"}], [], [{"x": 4.0, "y": "w"}]]),
    (Point.zip(y=col("s"), x=A).list.len(), LISTS, int, [2, 0, 1]),  # type: ignore[attr-defined]
    (zip_struct({"x": A, "y": col("s")}, Point), {"a": (list[int], []), "s": (list[str], [])}, list[Point], []),
    (MARK, MARKED, Mark, [{"n": 0, "of": "x", "r": "a"}, {"n": 5, "of": None, "r": "aa"}]),
    (when(A < 6).then(MARK), {**MARKED, "a": (int, [6, 5])}, Optional[Mark], [None, {"n": 5, "of": None, "r": "aa"}]),
    (MARKS, LISTED, list[Mark], [[{"n": 0, "of": None, "r": "a"}], []]),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "columns", "type_", "expected"), CASES, ids=str)
def test_values(expr: Expr, columns: Any, type_: Any, expected: list[Any]) -> None:
    check(expr, columns, type_, expected)


@pytest.mark.parametrize(
    ("expr", "columns"),
    [
        (repeat("x", A), {"a": (int, [1, -1])}),
        (repeat("x", A), {"a": (int, [1, 100_001])}),
        (repeat(1.5, A), {"a": (int, [10**12])}),
        (repeat("x", 2**63 - 1), {"a": (int, [1])}),
        (from_epoch(A, "second"), {"a": (int, [2**62])}),
        (from_epoch(A, "millisecond"), {"a": (int, [-(2**63)])}),
        (from_epoch(A, "second"), {"a": (int, [253_402_300_800])}),
        (from_epoch(A, "millisecond"), {"a": (int, [1_704_067_200_000_000])}),
        (from_epoch(A, "microsecond"), {"a": (int, [-62_135_596_800_000_001])}),
    ],
    ids=str,
)
def test_no_value(expr: Expr, columns: Any) -> None:
    fails(expr, columns, expr.function.name)


@pytest.mark.parametrize(
    ("expr", "columns"),
    [
        (MARK, {**MARKED, "a": (int, [0, 6])}),
        (MARK, {**MARKED, "a": (between(int, 0, 9), [0, 6])}),
        (MARK, {**MARKED, "s": (Optional[str], ["x", "z"])}),
        (MARK, {**MARKED, "r": (str, ["a", "ab"])}),
        (make_struct({"n": 7, "of": None, "r": "a"}, Mark), INTS),
        (MARKS, {**LISTED, "a": (list[int], [[-1, 9], []])}),
        (MARKS, {**LISTED, "s": (list[Optional[str]], [["z"], []])}),
        (A.list.map("v", make_struct({"n": var("v"), "of": None, "r": "a"}, Mark)), {"a": (list[int], [[1], [6]])}),
    ],
    ids=str,
)
def test_a_field_outside_its_type(expr: Expr, columns: Any) -> None:
    fails(expr, columns, "a field of the struct is outside its type", "'n' between(int, 0, 5)")


def test_the_first_and_the_last_instant() -> None:
    bounds = {"a": (int, [-62_135_596_800_000_000, 253_402_300_799_999_999])}
    ends = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    check(from_epoch(A, "microsecond"), bounds, datetime, ends)


def test_no_instant_beyond_them_reaches_another_function() -> None:
    """Polars panics when it writes one."""
    fails(from_epoch(A, "microsecond").dt.strftime("%Y"), {"a": (int, [2**63 - 1])}, "from_epoch", "years 1 to 9999")


@pytest.mark.parametrize(
    ("expr", "columns", "texts"),
    [
        (from_epoch(A, "day"), INTS, ["from_epoch", "'day'"]),
        (from_epoch(A, "Second"), INTS, ["from_epoch", "did you mean 'second'"]),
        (from_epoch(A, "second"), {"a": (float, [])}, ["from_epoch", "float"]),
        (repeat("x", A), NULLS, ["repeat", "Optional[int]"]),
        (repeat("x", 1.0), INTS, ["repeat", "float"]),
        (make_struct({"x": A}, Point), MIXED, ["Point", "x, y"]),
        (make_struct({"x": A, "y": col("s"), "z": A}, Point), MIXED, ["Point", "z"]),
        (make_struct({"x": A, "w": col("s")}, Point), MIXED, ["Point", "w"]),
        (make_struct({"x": col("s"), "y": col("s")}, Point), MIXED, ["Point", "'x'", "float", "Optional[str]"]),
        (make_struct({"x": A, "y": A}, Point), INTS, ["Point", "'y'", "Optional[str]", "int"]),
        (make_struct({"x": A, "y": None}, Point), NULLS, ["Point", "'x'", "float", "Optional[int]"]),
        (zip_struct({"x": A, "y": A}, Point), INTS, ["zip", "list", "int"]),
        (
            zip_struct({"x": A, "y": col("s")}, Point),
            {**LISTS, "s": (Optional[list[str]], [])},
            ["zip", "'y'", "Optional"],
        ),
        (zip_struct({"x": col("s"), "y": col("s")}, Point), LISTS, ["Point", "'x'", "str"]),
        (zip_struct({"x": A}, Point), LISTS, ["Point", "x, y"]),
    ],
    ids=str,
)
def test_refused(expr: Expr, columns: Any, texts: list[str]) -> None:
    refused(expr, columns, *texts)


def test_structs_are_made_of_struct_classes() -> None:
    with pytest.raises(InvalidExprException, match="struct"):
        make_struct({"x": A}, int)


@pytest.mark.parametrize("part", [1.5, "1", True, A])
def test_datetime_takes_constants(part: Any) -> None:
    with pytest.raises(TypeError, match="datetime"):
        moment(2024, part, 1)
