"""Functions of dicts."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from tests.unit.expr.table import check, refused
from umbel.expr import Expr, col, lit
from umbel.types.annotations import Dict
from umbel.types.restrictions import between

D = col("d")
ROWS = {"d": (Dict[int], [{"a": 1, "b": 2}, {}, {"b": 3}])}
NULLS = {"d": (Optional[Dict[int]], [{"a": 1}, None, {}])}
HOLES = {"d": (Dict[Optional[int]], [{"a": None}, {"a": 5}, {}])}
KEYS = {**ROWS, "k": (str, ["b", "a", "b"])}
MAYBE_KEYS = {**ROWS, "k": (Optional[str], ["b", None, "z"])}
GRADE = between(int, 0, 5)
GRADES = {"d": (Dict[GRADE], [{"a": 3}, {}])}
LISTS = {"d": (Dict[list[int]], [{"a": [1]}, {}])}

CASES: list[tuple[Expr, Any, Any, list[Any]]] = [
    (D.dict.get("a"), ROWS, Optional[int], [1, None, None]),
    (D.dict.get("a", 0), ROWS, int, [1, 0, 0]),
    (D.dict.get("a", default=col("i")), {**ROWS, "i": (int, [7, 8, 9])}, int, [1, 8, 9]),
    (D.dict.get("a", col("i")), {**ROWS, "i": (Optional[int], [7, None, 9])}, Optional[int], [1, None, 9]),
    (D.dict.get("a"), NULLS, Optional[int], [1, None, None]),
    (D.dict.get("a", 0), NULLS, Optional[int], [1, None, 0]),
    (D.dict.get("a"), HOLES, Optional[int], [None, 5, None]),
    (D.dict.get("a", 0), HOLES, Optional[int], [None, 5, 0]),
    (D.dict.get(col("k")), KEYS, Optional[int], [2, None, 3]),
    (D.dict.get(col("k"), 0), MAYBE_KEYS, Optional[int], [2, None, 0]),
    (D.dict.get("a"), LISTS, Optional[list[int]], [[1], None]),
    (D.dict.get("a", lit([], list[int])), LISTS, list[int], [[1], []]),
    (D.dict.get("a"), GRADES, Optional[GRADE], [3, None]),
    (D.dict.get("a", 9), GRADES, int, [3, 9]),
    (D.dict.get("a", lit(5, GRADE)), GRADES, GRADE, [3, 5]),
    (D.dict.get("a", 9), {"d": (Dict[Optional[GRADE]], [{"a": None}, {}])}, Optional[int], [None, 9]),
    (D.dict.len(), ROWS, int, [2, 0, 1]),
    (D.dict.len(), NULLS, Optional[int], [1, None, 0]),
    (D.dict.contains("a"), ROWS, bool, [True, False, False]),
    (D.dict.contains("a"), HOLES, bool, [True, True, False]),
    (D.dict.contains("a"), NULLS, Optional[bool], [True, None, False]),
    (D.dict.contains(col("k")), MAYBE_KEYS, Optional[bool], [True, None, False]),
]


@pytest.mark.parametrize(("expr", "columns", "type_", "expected"), CASES, ids=str)
def test_values(expr: Expr, columns: Any, type_: Any, expected: list[Any]) -> None:
    check(expr, columns, type_, expected)


@pytest.mark.parametrize(
    ("expr", "columns", "texts"),
    [
        (D.dict.get("a", "x"), ROWS, ["dict.get", "Dict[str, int]", "str"]),
        (D.dict.get("a", 1.5), ROWS, ["dict.get", "float"]),
        (D.dict.get(1), ROWS, ["dict.get", "int"]),
        (D.dict.contains(1), ROWS, ["dict.contains", "int"]),
        (col("l").dict.len(), {"l": (list[int], [])}, ["dict.len", "List[int]"]),
    ],
    ids=str,
)
def test_refused(expr: Expr, columns: Any, texts: list[str]) -> None:
    refused(expr, columns, *texts)
