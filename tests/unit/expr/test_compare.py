"""Comparisons, rule by rule: which types, nulls, NaN."""

from __future__ import annotations

import decimal
from datetime import UTC, date, datetime
from typing import Any, Optional

import pytest

from tests.unit.expr.table import check, refused
from umbel.expr import Expr, InvalidExprException, col, lit
from umbel.types.annotations import Decimal, Dict, between, oneof, regex
from umbel.types.structs import struct


@struct
class Point:
    x: int


A, B = col("a"), col("b")
DAY = datetime(2024, 1, 1, tzinfo=UTC)
INTS = {"a": (int, [1, 2, 3]), "b": (int, [2, 2, 2])}
NULLS = {"a": (Optional[int], [1, None, None]), "b": (Optional[float], [None, 2.0, None])}


CASES: list[tuple[Expr, Any, Any, list[Any]]] = [
    (A == B, INTS, bool, [False, True, False]),
    (A != B, INTS, bool, [True, False, True]),
    (A > B, INTS, bool, [False, False, True]),
    (A >= B, INTS, bool, [False, True, True]),
    (A < B, INTS, bool, [True, False, False]),
    (A <= B, INTS, bool, [True, True, False]),
    (A >= 2, INTS, bool, [False, True, True]),
    (A == 2.0, INTS, bool, [False, True, False]),
    (A > 1.5, INTS, bool, [False, True, True]),
    (A == B, NULLS, Optional[bool], [None, None, None]),
    (A != B, NULLS, Optional[bool], [None, None, None]),
    (A > 0, NULLS, Optional[bool], [True, None, None]),
    (lit(None) == A, INTS, Optional[bool], [None, None, None]),
    (A == None, INTS, Optional[bool], [None, None, None]),  # noqa: E711
    (A != None, INTS, Optional[bool], [None, None, None]),  # noqa: E711
    (col("s") == "x", {"s": (str, ["x", "y"])}, bool, [True, False]),
    (col("s") == "x", {"s": (Optional[str], ["x", None])}, Optional[bool], [True, None]),
    (col("t") == True, {"t": (bool, [True, False])}, bool, [True, False]),  # noqa: E712
    (col("d") == lit(DAY, datetime), {"d": (datetime, [DAY])}, bool, [True]),
    (col("d") != lit(DAY.date(), date), {"d": (date, [DAY.date()])}, bool, [False]),
    (
        col("m") == lit("1.50", Decimal[2]),
        {"m": (Decimal[2], [decimal.Decimal("1.5"), decimal.Decimal("1.51")])},
        bool,
        [True, False],
    ),
    (col("l") == lit([1, 2], list[int]), {"l": (list[int], [[1, 2], [2, 1], []])}, bool, [True, False, False]),
    (col("o") == "a", {"o": (oneof(str, ["a", "b"]), ["a", "b"])}, bool, [True, False]),
    (col("o") == "a", {"o": (regex("[ab]"), ["a", "b"])}, bool, [True, False]),
    (col("o") >= 1, {"o": (between(int, 0, 5), [0, 1])}, bool, [False, True]),
]


@pytest.mark.parametrize(("expr", "columns", "type_", "expected"), CASES, ids=str)
def test_values(expr: Expr, columns: Any, type_: Any, expected: list[Any]) -> None:
    check(expr, columns, type_, expected)


NAN_ROWS = {"a": (Optional[float], [0.0, 0.0, 1.0, None, 0.0]), "b": (Optional[float], [1.0, 0.0, 0.0, 0.0, None])}
# 0 / 0 is NaN; null stays null.
X, Y = (A / A) * A, (B / B) * B


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (X == Y, [False, False, False, None, None]),
        (X != Y, [True, True, True, None, None]),
        (X > Y, [False, False, False, None, None]),
        (X >= Y, [False, False, False, None, None]),
        (X < Y, [False, False, False, None, None]),
        (X <= Y, [False, False, False, None, None]),
    ],
    ids=str,
)
def test_nan_is_neither_equal_nor_ordered(expr: Expr, expected: list[Any]) -> None:
    check(expr, NAN_ROWS, Optional[bool], expected)


@pytest.mark.parametrize(
    ("expr", "columns", "texts"),
    [
        (A > "x", INTS, ["'>'", "int", "str"]),
        (col("s") < col("s"), {"s": (str, [])}, ["'<'", "str"]),
        (col("d") >= col("d"), {"d": (datetime, [])}, ["'>='", "datetime"]),
        (col("d") <= col("d"), {"d": (date, [])}, ["'<='", "date"]),
        (col("m") > 1, {"m": (Decimal[2], [])}, ["'>'", "Decimal[2]"]),
        (A == "x", INTS, ["'=='", "int", "str"]),
        (A != True, INTS, ["'!='", "int", "bool"]),  # noqa: E712
        (col("p") == col("p"), {"p": (Point, [])}, ["'=='", "Point"]),
        (col("p") == col("p"), {"p": (list[Point], [])}, ["'=='", "List[Point]"]),
        (col("p") == col("p"), {"p": (Dict[int], [])}, ["'=='", "Dict[str, int]"]),
        (col("l") == col("m"), {"l": (list[int], []), "m": (list[str], [])}, ["'=='", "List[int]", "List[str]"]),
    ],
    ids=str,
)
def test_incomparable(expr: Expr, columns: Any, texts: list[str]) -> None:
    refused(expr, columns, *texts)


def test_square_brackets_are_refused_when_typed() -> None:
    expr = col("l")[0]
    with pytest.raises(InvalidExprException, match=r"\.list\.at"):
        expr.typeof({"l": list[int]})
