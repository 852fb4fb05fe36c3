"""Kleene logic, isnull and fillnull."""

from __future__ import annotations

from itertools import product
from typing import Any, Optional

import pytest

from tests.unit.expr.table import NAN, check, refused
from umbel.expr import Expr, col, lit
from umbel.types.annotations import Decimal, oneof

A, B = col("a"), col("b")
PAIRS = list(product([True, False, None], repeat=2))
THREE = {"a": (Optional[bool], [a for a, _ in PAIRS]), "b": (Optional[bool], [b for _, b in PAIRS])}
PLAIN = {"a": (bool, [True, False]), "b": (bool, [True, True])}
NULLS = {"a": (Optional[int], [1, None])}


def kleene_and(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def kleene_or(a: bool | None, b: bool | None) -> bool | None:
    return True if a is True or b is True else None if a is None or b is None else False


CASES: list[tuple[Expr, Any, Any, list[Any]]] = [
    (A & B, THREE, Optional[bool], [kleene_and(a, b) for a, b in PAIRS]),
    (A | B, THREE, Optional[bool], [kleene_or(a, b) for a, b in PAIRS]),
    (~A, THREE, Optional[bool], [None if a is None else not a for a, _ in PAIRS]),
    (A & B, PLAIN, bool, [True, False]),
    (True & A, PLAIN, bool, [True, False]),
    (False | A, PLAIN, bool, [True, False]),
    (A & lit(None), PLAIN, Optional[bool], [None, False]),
    (~(A & B), PLAIN, bool, [False, True]),
    (A.isnull(), NULLS, bool, [False, True]),
    (A.isnull(), PLAIN, bool, [False, False]),
    (lit(None).isnull(), PLAIN, bool, [True, True]),
    ((A / A).isnull(), {"a": (Optional[int], [0, None])}, bool, [False, True]),
    (A.fillnull(0), NULLS, int, [1, 0]),
    (A.fillnull(1.5), NULLS, float, [1.0, 1.5]),
    (A.fillnull(A), NULLS, Optional[int], [1, None]),
    (A.fillnull(lit(None)), NULLS, Optional[int], [1, None]),
    (A.fillnull(1.5), {"a": (int, [1])}, float, [1.0]),
    (lit(None).fillnull(3), NULLS, int, [3, 3]),
    (A.fillnull("z"), {"a": (Optional[str], ["x", None])}, str, ["x", "z"]),
    (A.fillnull(7), {"a": (Optional[oneof(int, [1, 2])], [1, None])}, int, [1, 7]),
    (A.fillnull(lit([0], list[int])), {"a": (Optional[list[int]], [[1], None])}, list[int], [[1], [0]]),
    ((A / A).fillnull(1.0), {"a": (Optional[int], [0, None])}, float, [NAN, 1.0]),
    # What an error would come from does not count where its value does not.
    ((A != 0) & (4 // A > 1), {"a": (int, [0, 2, 4])}, bool, [False, True, False]),
    ((A == 0) | (4 // A > 1), {"a": (int, [0, 2, 4])}, bool, [True, True, False]),
    (B.fillnull(4 // A), {"a": (int, [0, 2]), "b": (Optional[int], [9, None])}, int, [9, 2]),
]


@pytest.mark.parametrize(("expr", "columns", "type_", "expected"), CASES, ids=str)
def test_values(expr: Expr, columns: Any, type_: Any, expected: list[Any]) -> None:
    check(expr, columns, type_, expected)


@pytest.mark.parametrize(
    ("expr", "columns", "texts"),
    [
        (A & 1, PLAIN, ["'&'", "bool", "int"]),
        (A | "x", PLAIN, ["'|'", "bool", "str"]),
        (~A, NULLS, ["'~'", "Optional[int]"]),
        (A.fillnull("x"), NULLS, ["fillnull", "Optional[int]", "str"]),
        (A.fillnull(1), {"a": (Optional[Decimal[2]], [])}, ["fillnull", "Decimal[2]", "int"]),
    ],
    ids=str,
)
def test_refused(expr: Expr, columns: Any, texts: list[str]) -> None:
    refused(expr, columns, *texts)
