"""Constants."""

from __future__ import annotations

import decimal
import json
import math
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any, Optional

import numpy as np
import pytest

from tests.unit.expr.table import check
from umbel.errors import InvalidType, InvalidValue
from umbel.expr import Expr, InvalidExprException, col, lit
from umbel.types.annotations import Decimal, Dict, Embedding, oneof
from umbel.types.structs import struct


@struct
class Point:
    x: int
    y: str | None


DAY = datetime(2024, 1, 1, 12, tzinfo=UTC)
ONE_ROW = {"a": (int, [0])}

CASES = [
    (lit(1), int, 1),
    (lit(1.5), float, 1.5),
    (lit("x"), str, "x"),
    (lit(True), bool, True),
    (lit(np.int64(4)), int, 4),
    (lit(np.float32(0.5)), float, 0.5),
    (lit(np.bool_(True)), bool, True),
    (lit(1, float), float, 1.0),
    (lit(None, Optional[int]), Optional[int], None),
    (lit([1, 2], list[int]), list[int], [1, 2]),
    (lit([], list[str]), list[str], []),
    (lit([1, None], list[int | None]), list[int | None], [1, None]),
    (lit({"b": 1, "a": 2}, Dict[int]), Dict[int], [{"key": "a", "value": 2}, {"key": "b", "value": 1}]),
    (lit({"x": 1}, Point), Point, {"x": 1, "y": None}),
    (lit(Point(1, "q"), Point), Point, {"x": 1, "y": "q"}),
    (lit([{"x": 1, "y": "q"}], list[Point]), list[Point], [{"x": 1, "y": "q"}]),
    (lit("1.25", Decimal[2]), Decimal[2], decimal.Decimal("1.25")),
    (lit(decimal.Decimal("1.25"), Decimal[2]), Decimal[2], decimal.Decimal("1.25")),
    (lit(DAY, datetime), datetime, DAY),
    (lit("2024-01-01T12:00:00Z", datetime), datetime, DAY),
    (lit(DAY.date(), date), date, DAY.date()),
    (lit(b"\x00\xff", bytes), bytes, b"\x00\xff"),
    (lit([0.5, 1.0], Embedding[2]), Embedding[2], [0.5, 1.0]),
    (lit("a", oneof(str, ["a"])), oneof(str, ["a"]), "a"),
    (lit(math.inf), float, math.inf),
]


@pytest.mark.parametrize(("expr", "type_", "value"), CASES, ids=str)
def test_values_and_records(expr: Expr, type_: Any, value: Any) -> None:
    check(expr, ONE_ROW, type_, [value])
    revived = Expr.from_record(json.loads(json.dumps(expr.to_record(), allow_nan=False)))
    check(revived, ONE_ROW, type_, [value])
    assert revived.to_record() == expr.to_record()


def test_null_has_a_type_of_its_own() -> None:
    assert lit(None).typeof({}) is type(None)
    assert str(lit(None)) == "lit(None)"


@pytest.mark.parametrize("value", [[1], {"a": 1}, DAY, DAY.date(), decimal.Decimal(1), Point(1, None), b"x", (1,)])
def test_the_type_must_be_declared(value: Any) -> None:
    with pytest.raises(InvalidExprException, match="cannot infer type"):
        lit(value)
    with pytest.raises(InvalidExprException, match="cannot infer type"):
        col("a") == value  # noqa: B015


@pytest.mark.parametrize(
    ("value", "type_"), [("x", int), ([1, "x"], list[int]), (None, int), ({"y": "q"}, Point), ("z", oneof(str, ["a"]))]
)
def test_values_of_another_type(value: Any, type_: Any) -> None:
    with pytest.raises(InvalidValue, match="lit"):
        lit(value, type_)


def test_ints_have_64_bits() -> None:
    with pytest.raises(InvalidValue, match="64 bits"):
        col("a") + 2**63


@pytest.mark.parametrize("value", [lambda row: row, len, int])
def test_callables_are_no_constants(value: Any) -> None:
    for use in (lambda: col("a") + value, lambda: lit(value)):
        with pytest.raises(InvalidType, match="function"):
            use()


def test_a_member_of_an_enum_of_texts_is_its_value() -> None:
    class Colour(str, Enum):
        RED = "red"

    assert str(lit(Colour.RED)) == 'lit("red")'
    check(col("a") == Colour.RED, {"a": (str, ["red", "blue"])}, bool, [True, False])


def test_a_literal_is_no_literal_of_an_expression() -> None:
    with pytest.raises(InvalidExprException, match="cannot infer type"):
        lit(col("a"))
