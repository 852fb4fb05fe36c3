"""Arithmetic, rule by rule: types, nulls, division, remainders, overflow."""

from __future__ import annotations

import decimal
from operator import floordiv, mod, truediv
from typing import Any, Optional

import pandas as pd
import pytest

from tests.unit.expr.table import NAN, check, fails, refused
from umbel.expr import Expr, col, lit, var
from umbel.expr.tree import scope_of
from umbel.types.annotations import Decimal, between, oneof
from umbel.types.dtypes import Int

INF = float("inf")
INTS = {"a": (int, [7, -7, 7, -7]), "b": (int, [2, 2, -2, -2])}
FLOATS = {"a": (float, [7.5, -7.5, 1.0, 0.0]), "b": (float, [2.0, 2.0, 0.0, 0.0])}
INEXACT = {"a": (float, [1e17, 6.0, 1.0, -1e17, -1e-20, -5.0]), "b": (float, [3.0, 0.1, 0.1, 3.0, 3.0, INF])}
MIXED = {"a": (int, [1, 2]), "b": (float, [0.5, 1.5])}
NULLS = {"a": (Optional[int], [1, None, 3]), "b": (Optional[int], [None, 2, 3])}
BIG = {"a": (int, [2**63 - 1]), "b": (int, [-(2**63)])}

A, B = col("a"), col("b")

CASES: list[tuple[Expr, Any, Any, list[Any]]] = [
    (A + B, INTS, int, [9, -5, 5, -9]),
    (A - B, INTS, int, [5, -9, 9, -5]),
    (A * B, INTS, int, [14, -14, -14, 14]),
    (A + B, MIXED, float, [1.5, 3.5]),
    (A + 1.5, MIXED, float, [2.5, 3.5]),
    (1 + A, MIXED, int, [2, 3]),
    (10 - A, MIXED, int, [9, 8]),
    (2 * A, MIXED, int, [2, 4]),
    (A + B, NULLS, Optional[int], [None, None, 6]),
    (A * 2.0, NULLS, Optional[float], [2.0, None, 6.0]),
    (A + lit(None), MIXED, Optional[int], [None, None]),
    (A / B, INTS, float, [3.5, -3.5, -3.5, 3.5]),
    (A / B, FLOATS, float, [3.75, -3.75, INF, NAN]),
    (1 / A, {"a": (int, [0, 2])}, float, [INF, 0.5]),
    (A / B, NULLS, Optional[float], [None, None, 1.0]),
    (A // B, INTS, int, [3, -4, -4, 3]),
    (A // B, FLOATS, float, [3.0, -4.0, INF, NAN]),
    (A // 2, MIXED, int, [0, 1]),
    (9 // A, INTS, int, [1, -2, 1, -2]),
    (A // 0, {"a": (Optional[int], [None])}, Optional[int], [None]),
    (A % B, INTS, int, [1, 1, -1, -1]),
    (A % B, FLOATS, float, [1.5, 0.5, NAN, NAN]),
    (A % 0, {"a": (Optional[int], [None])}, Optional[int], [None]),
    (10 % A, INTS, int, [3, -4, 3, -4]),
    (A % INF, {"a": (float, [5.0, -5.0, 0.0])}, float, [5.0, INF, 0.0]),
    (A % B, INEXACT, float, [1.0, 0.09999999999999967, 0.09999999999999995, 2.0, 3.0, INF]),
    (A // B, INEXACT, float, [33333333333333332.0, 59.0, 9.0, -33333333333333332.0, -1.0, -1.0]),
    (A // 2.0, {"a": (float, [INF, 5.0])}, float, [NAN, 2.0]),
    (A % -INF, {"a": (float, [5.0, -5.0])}, float, [-INF, -5.0]),
    (A % -1, BIG, int, [0]),
    (-A, INTS, int, [-7, 7, -7, 7]),
    (-A, NULLS, Optional[int], [-1, None, -3]),
    (-A, FLOATS, float, [-7.5, 7.5, -1.0, -0.0]),
    (-(A + 1), MIXED, int, [-2, -3]),
    (A + 0, BIG, int, [2**63 - 1]),
    (A + B, BIG, int, [-1]),
    (A + 1, {"a": (oneof(int, [1, 2]), [1, 2])}, int, [2, 3]),
    (A / 2, {"a": (Optional[between(float, 0, 1)], [0.5, None])}, Optional[float], [0.25, None]),
]


@pytest.mark.parametrize(("expr", "columns", "type_", "expected"), CASES, ids=str)
def test_values(expr: Expr, columns: Any, type_: Any, expected: list[Any]) -> None:
    check(expr, columns, type_, expected)


@pytest.mark.parametrize(
    ("expr", "columns"),
    [
        (A // 0, INTS),
        (A % 0, INTS),
        (1 // (A - 7), INTS),
        (A + 1, BIG),
        (B - 1, BIG),
        (A * 2, BIG),
        (A * A, BIG),
        (B * B, BIG),
        (-B, BIG),
        (B // -1, BIG),
        (lit(1) // 0, INTS),
    ],
    ids=str,
)
def test_there_is_no_int_for_it(expr: Expr, columns: Any) -> None:
    fails(expr, columns, "int", str(expr))


@pytest.mark.parametrize(
    ("expr", "columns", "texts"),
    [
        (A + "x", MIXED, ["'+'", "int", "str"]),
        (col("s") + "x", {"s": (str, ["y"])}, ["'+'", "str"]),
        (A - col("t"), {**MIXED, "t": (bool, [True, False])}, ["'-'", "bool", "int"]),
        (A * lit([1], list[int]), MIXED, ["'*'", "List[int]"]),
        (A / True, MIXED, ["'/'", "bool"]),
        (col("d") + col("d"), {"d": (Decimal[2], [decimal.Decimal("1.5")])}, ["'+'", "Decimal[2]"]),
        (-col("s"), {"s": (str, ["y"])}, ["'-'", "str"]),
    ],
    ids=str,
)
def test_numbers_only(expr: Expr, columns: Any, texts: list[str]) -> None:
    refused(expr, columns, *texts)


@pytest.mark.parametrize("divisor", [3, 7.0, lit(3.0) + lit(4.0)], ids=str)
def test_quotients_are_rounded_once_however_many_rows_there_are(divisor: Any) -> None:
    by = 7.0 if isinstance(divisor, Expr) else float(divisor)
    numbers = [float(number) for number in range(1, 1000)]
    found = (A / divisor).eval(pd.DataFrame({"a": numbers}), {"a": float})
    assert found.tolist() == [number / by for number in numbers]
    lists = col("l").list.map("v", var("v") / divisor).eval(pd.DataFrame({"l": [numbers]}), {"l": list[float]})
    assert list(lists[0]) == found.tolist()


@pytest.mark.parametrize("operate", [truediv, floordiv, mod], ids=["/", "//", "%"])
@pytest.mark.parametrize("is_left", [True, False], ids=["of the left", "of the right"])
def test_operations_in_each_other_grow_with_their_number(operate: Any, is_left: bool) -> None:
    def nested(of: Any, count: int) -> Any:
        for number in range(count):
            of = operate(of, 3 + number) if is_left else operate(10**6 + number, of)
        return of

    def size(count: int) -> int:
        return len(nested(col("x"), count).compile(scope_of({"x": Int()})).value.meta.serialize())

    assert size(12) < 4 * size(6)
    rows = pd.DataFrame({"x": [23, 30, 7079, 7086]})
    found = nested(col("x"), 3).eval(rows, {"x": int}).tolist()
    assert found == [nested(each, 3) for each in rows["x"]]
