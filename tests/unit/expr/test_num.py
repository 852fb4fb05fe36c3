"""Functions of numbers."""

from __future__ import annotations

import math
from typing import Any, Optional

import pytest

from tests.unit.expr.table import NAN, check, fails, refused
from umbel.errors import InvalidType
from umbel.expr import Expr, InvalidExprException, col

A, B = col("a"), col("b")
INF = float("inf")
INTS = {"a": (int, [2, -3])}
FLOATS = {"a": (float, [1.5, -1.5])}
NULLS = {"a": (Optional[float], [4.0, None])}
HALVES = {"a": (float, [2.5, -2.5, 0.5, 1.4999, -0.49999999999999994])}


def ratio(values: list[float]) -> Any:
    return {"a": (float, values), "z": (float, [0.0] * len(values))}


CASES: list[tuple[Expr, Any, Any, list[Any]]] = [
    (A.abs(), INTS, int, [2, 3]),
    (A.num.abs(), FLOATS, float, [1.5, 1.5]),
    (A.num.abs(), NULLS, Optional[float], [4.0, None]),
    (A.ceil(), FLOATS, int, [2, -1]),
    (A.num.floor(), FLOATS, int, [1, -2]),
    (A.floor(), INTS, int, [2, -3]),
    (A.ceil(), NULLS, Optional[int], [4, None]),
    (A.round(), HALVES, int, [3, -3, 1, 1, 0]),
    (A.num.round(0), HALVES, int, [3, -3, 1, 1, 0]),
    (A.round(2), {"a": (float, [2.345, -2.345, 1.0])}, float, [2.35, -2.35, 1.0]),
    (A.round(1), INTS, float, [2.0, -3.0]),
    (A.round(), {"a": (int, [2**63 - 1])}, int, [2**63 - 1]),
    (A.round(1), NULLS, Optional[float], [4.0, None]),
    (A.num.sqrt(), {"a": (int, [4, -1])}, float, [2.0, NAN]),
    (A.num.sqrt(), NULLS, Optional[float], [2.0, None]),
    (A.num.pow(3), INTS, int, [8, -27]),
    (A.num.pow(B), {"a": (int, [2, -2, 1, -1, 0]), "b": (int, [62, 63, 10**10, 10**10 + 1, 0])}, int,
     [2**62, -(2**63), 1, -1, 1]),
    (A.num.pow(-1.0), INTS, float, [0.5, -1 / 3]),
    (A.num.pow(-1), {"a": (float, [2.0, 0.0])}, float, [0.5, INF]),
    (A.num.pow(0.5), {"a": (float, [4.0, -4.0])}, float, [2.0, NAN]),
    (A.num.pow(2), NULLS, Optional[float], [16.0, None]),
    (A.num.log(), {"a": (float, [1.0, math.e, 0.0, -1.0])}, float, [0.0, 1.0, -INF, NAN]),
    (A.num.log(base=2), {"a": (int, [8, 1])}, float, [3.0, 0.0]),
    (A.num.log(B), {"a": (int, [8]), "b": (float, [2.0])}, float, [3.0]),
    (A.num.sin(), FLOATS, float, [math.sin(1.5), math.sin(-1.5)]),
    (A.num.cos(), FLOATS, float, [math.cos(1.5), math.cos(-1.5)]),
    (A.num.tan(), FLOATS, float, [math.tan(1.5), math.tan(-1.5)]),
    (A.num.arcsin(), {"a": (float, [0.5, 2.0])}, float, [math.asin(0.5), NAN]),
    (A.num.arccos(), {"a": (float, [0.5, 2.0])}, float, [math.acos(0.5), NAN]),
    (A.num.arctan(), {"a": (int, [1])}, float, [math.pi / 4]),
    (A.num.to_string(), {"a": (float, [1.5, 1.0, 1e20, -0.25, 1e-7])}, str, ["1.5", "1.0", "1e20", "-0.25", "1e-7"]),
    (A.num.to_string(), INTS, str, ["2", "-3"]),
    (A.num.to_string(), NULLS, Optional[str], ["4.0", None]),
    ((A / col("z")).num.is_nan(), ratio([0.0, 1.0]), bool, [True, False]),
    ((A / col("z")).num.is_infinite(), ratio([0.0, 1.0, -1.0]), bool, [False, True, True]),
    (A.num.is_nan(), INTS, bool, [False, False]),
    (A.num.is_nan(), NULLS, Optional[bool], [False, None]),
    # An int for NaN there is not: it is null.
    ((A / col("z")).floor(), ratio([0.0]), int, [None]),
    (A.abs().sqrt(), INTS, float, [math.sqrt(2), math.sqrt(3)]),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "columns", "type_", "expected"), CASES, ids=str)
def test_values(expr: Expr, columns: Any, type_: Any, expected: list[Any]) -> None:
    check(expr, columns, type_, expected)


@pytest.mark.parametrize(
    ("expr", "columns"),
    [
        (A.num.pow(-1), INTS),
        (A.num.pow(64), INTS),
        (A.num.pow(10**12), INTS),
        (A.floor(), {"a": (float, [1e19])}),
        (A.round(), {"a": (float, [-1e19])}),
        ((A / col("z")).ceil(), ratio([1.0])),
        (A.abs(), {"a": (int, [-(2**63)])}),
    ],
    ids=str,
)
def test_no_value(expr: Expr, columns: Any) -> None:
    fails(expr, columns)


@pytest.mark.parametrize("name", ["abs", "ceil", "floor", "sqrt", "log", "sin", "to_string", "is_nan"])
def test_numbers_only(name: str) -> None:
    refused(getattr(col("s").num, name)(), {"s": (str, [])}, f"num.{name}", "str")


def test_pow_takes_a_number() -> None:
    refused(A.num.pow("x"), INTS, "num.pow", "str", "int")


@pytest.mark.parametrize("precision", [-1, 1.0, "1", True, None])
def test_bad_precision(precision: Any) -> None:
    with pytest.raises(InvalidExprException, match="precision"):
        A.round(precision)


def test_num_round_needs_its_argument() -> None:
    with pytest.raises(InvalidType, match="precision"):
        A.num.round()
