"""Functions of structs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Optional

import pytest

from tests.unit.expr.table import check, refused
from umbel.expr import Expr, InvalidExprException, col
from umbel.types.structs import struct
from umbel.types.windows import Window


@struct
class Inner:
    z: float


@struct
class Outer:
    x: int
    y: str | None
    inner: Inner


P = col("p")
ONE = {"x": 1, "y": None, "inner": {"z": 0.5}}
ROWS = {"p": (Outer, [ONE])}
NULLS = {"p": (Optional[Outer], [ONE, None])}
BEGIN, END = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
SPANS = {"w": (Window, [{"begin": BEGIN, "end": END}])}

CASES: list[tuple[Expr, Any, Any, list[Any]]] = [
    (P.struct.get("x"), ROWS, int, [1]),
    (P.struct.get("y"), ROWS, Optional[str], [None]),
    (P.struct.get("x"), NULLS, Optional[int], [1, None]),
    (P.struct.get("inner").struct.get("z"), NULLS, Optional[float], [0.5, None]),
    (col("w").struct.get("end").dt.since(col("w").struct.get("begin"), "hour"), SPANS, int, [24]),
]


@pytest.mark.parametrize(("expr", "columns", "type_", "expected"), CASES, ids=str)
def test_values(expr: Expr, columns: Any, type_: Any, expected: list[Any]) -> None:
    check(expr, columns, type_, expected)


def test_unknown_field() -> None:
    refused(P.struct.get("inne"), ROWS, "Outer", "'inne'", "did you mean 'inner'")


def test_structs_only() -> None:
    refused(col("a").struct.get("x"), {"a": (int, [])}, "struct.get", "int")


@pytest.mark.parametrize("name", [0, col("x"), None])
def test_the_field_is_a_name(name: Any) -> None:
    with pytest.raises(InvalidExprException, match=r"struct\.get"):
        P.struct.get(name)
