"""`typeof` and `matches_type`, with and without a schema."""

import operator
from datetime import datetime
from typing import Dict, List, Optional

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.dtypes import Decimal, between, oneof, regex, struct
from umbel.expr import col, lit, now, when


@struct
class Point:
    x: int
    y: Optional[float]


TYPED = [
    (lit(1), int), (lit(1.5) + 1, float), (lit("a"), str), (lit(True), bool), (now(), datetime),
    (lit([1], List[int]), List[int]), (when(lit(True)).then(1), Optional[int]), (lit(3).num.sqrt(), float),
    (Point.expr(x=1, y=2.0), Point),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "expected"), TYPED, ids=str)
def test_constants_have_a_type_without_a_schema(expr, expected) -> None:
    assert expr.typeof() == expr.typeof(None) == expr.typeof({}) == expr.typeof(schema={"a": int}) == expected


@pytest.mark.parametrize("expr", [col("a"), col("a") + 1, when(col("a")).then(1), lit(1) + col("b").num.abs()], ids=str)
def test_columns_need_a_schema(expr) -> None:
    with refusal(ValueError, "failed to compile expression", "not in the schema", at=False, remedy=False):
        expr.typeof()


SCHEMA = {"i": int, "f": float, "s": str, "b": bool, "o": Optional[int], "p": Point, "ps": List[Point], "d": Decimal[2]}

MATCHES = [
    ("i", int, True), ("i", float, True), ("i", Optional[int], True), ("i", Optional[float], True), ("i", Decimal[2], True),
    ("i", str, False), ("i", bool, False), ("i", between(int, 1, 4), True), ("i", oneof(str, ["a"]), False),
    ("i", List[int], False), ("i", Dict[str, int], False), ("f", int, False), ("f", Decimal[2], True),
    ("f", Optional[int], False), ("s", regex("a+"), True), ("s", oneof(str, ["a"]), True), ("b", int, False),
    ("o", int, False), ("o", Optional[int], True), ("o", Optional[float], True), ("o", float, False),
    ("p", Point, True), ("p", Optional[Point], True), ("p", List[Point], False), ("ps", List[Point], True),
    ("ps", Optional[List[Point]], True), ("ps", List[int], False), ("d", Decimal[2], True), ("d", float, False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "expected"), MATCHES, ids=str)
def test_matches_type(name: str, kind, expected: bool) -> None:
    assert col(name).matches_type(kind, SCHEMA) is expected


def test_matches_type_of_constants_and_structs() -> None:
    assert lit(5).matches_type(between(int, 1, 4))
    assert lit(5).matches_type(float, {})
    assert Point.expr(x=col("i"), y=None).matches_type(Point, SCHEMA)
    assert Point.zip(x=lit([1], List[int]), y=lit([1.0], List[float])).matches_type(List[Point], SCHEMA)
    assert (col("i") / 2).matches_type(float, SCHEMA)
    assert not (col("i") / 2).matches_type(int, SCHEMA)
    with refusal(ValueError, "failed to compile expression", at=False, remedy=False):
        (col("i") + col("s")).matches_type(int, SCHEMA)
    with refusal(ValueError, "zz", at=False, remedy=False):
        col("zz").matches_type(int, SCHEMA)


USES = {
    "typeof": lambda e: e.typeof(SCHEMA),
    "eval": lambda e: e.eval(pd.DataFrame({"b": [True]}), {"b": bool}),
    "matches_type": lambda e: e.matches_type(int, SCHEMA),
    "astype": lambda e: e.astype(int),
    "isnull": lambda e: e.isnull(),
    "fillnull": lambda e: e.fillnull(1),
    "num": lambda e: e.num.abs(),
    "str": lambda e: e.str.len(),
    "list": lambda e: e.list.len(),
    "dt": lambda e: e.dt.year,
    "struct": lambda e: e.struct.get("x"),
    "dict": lambda e: e.dict.len(),
    "abs": lambda e: e.abs(),
    "invert": lambda e: ~e,
    "neg": lambda e: -e,
    "bool": bool,
    "item": lambda e: e[0],
    "iter": list,
    "contains": lambda e: 1 in e,
    "nested": lambda e: col("i") + e,
    "condition": lambda e: when(e),
    "value": lambda e: when(col("b")).then(e),
}

BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "and_", "or_", "xor", "eq", "ne", "lt", "le", "gt", "ge"]

USES |= {name: (lambda e, name=name: getattr(operator, name)(e, 1)) for name in BINARY}

USES |= {f"r{name}": (lambda e, name=name: getattr(operator, name)(1, e)) for name in BINARY}
