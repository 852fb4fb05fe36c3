"""Choices: when, then, otherwise."""

from __future__ import annotations

import operator
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Optional

import pandas as pd
import polars as pl
import pytest

from tests.unit.expr.table import check, fails, refused
from tests.unit.refusals import refusal
from umbel.errors import InvalidAttribute
from umbel.expr import Expr, InvalidExprException, col, lit, when
from umbel.expr.compiled import Scope
from umbel.types.annotations import oneof
from umbel.types.dtypes import Int
from umbel.types.structs import struct


@struct
class Point:
    x: int


A, B = col("a"), col("b")
INTS = {"a": (int, [1, 2, 3])}
NULLS = {"a": (Optional[int], [1, None, 3])}
POINTS = {"a": (int, [1, 2]), "p": (Point, [{"x": 5}, {"x": 6}])}

CASES: list[tuple[Expr, Any, Any, list[Any]]] = [
    (when(A > 1).then("big").otherwise("small"), INTS, str, ["small", "big", "big"]),
    (when(A > 2).then(3).when(A > 1).then(2).otherwise(1), INTS, int, [1, 2, 3]),
    (when(A > 1).then(3).when(A > 2).then(2).otherwise(1), INTS, int, [1, 3, 3]),
    (when(A > 1).then(A), INTS, Optional[int], [None, 2, 3]),
    (when(A > 1).then(A).otherwise(None), INTS, Optional[int], [None, 2, 3]),
    (when(A > 1).then(None).otherwise(A), INTS, Optional[int], [1, None, None]),
    (when(A > 1).then(1.5).otherwise(A), INTS, float, [1.0, 1.5, 1.5]),
    (when(A > 1).then(1.5).when(A > 0).then(1), INTS, Optional[float], [1.0, 1.5, 1.5]),
    (when(A > 1).then(A).otherwise(0), NULLS, Optional[int], [0, 0, 3]),
    (when(A > 1).then(1).otherwise(0), NULLS, int, [0, 0, 1]),
    (when(~(A > 1)).then(1).otherwise(0), NULLS, int, [1, 0, 0]),
    (when(lit(None)).then(1).otherwise(0), INTS, int, [0, 0, 0]),
    (when(True).then(1).otherwise(0), INTS, int, [1, 1, 1]),
    (when(A > 1).then(col("o")).otherwise(col("o")), {**INTS, "o": (oneof(str, ["x"]), ["x"] * 3)},
     oneof(str, ["x"]), ["x"] * 3),
    (when(A > 1).then(col("o")).otherwise("y"), {**INTS, "o": (oneof(str, ["x"]), ["x"] * 3)}, str, ["y", "x", "x"]),
    (when(A > 1).then(lit([1], list[int])), INTS, Optional[list[int]], [None, [1], [1]]),
    (when(A > 1).then(col("p")), POINTS, Optional[Point], [None, {"x": 6}]),
    (when(A > 1).then(lit(datetime(2024, 1, 1, tzinfo=UTC), datetime)), {"a": (int, [1])}, Optional[datetime], [None]),
    (when(A != 0).then(6 // A).otherwise(-1), {"a": (int, [0, 2])}, int, [-1, 3]),
    (when(A == 0).then(-1).when(6 // A > 2).then(1).otherwise(6 // A), {"a": (int, [0, 2, 3])}, int, [-1, 1, 2]),
    (when(A == 0).then(-1).otherwise(when(A == 1).then(0).otherwise(6 // (A * (A - 1)))), {"a": (int, [0, 1, 3])},
     int, [-1, 0, 1]),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "columns", "type_", "expected"), CASES, ids=str)
def test_values(expr: Expr, columns: Any, type_: Any, expected: list[Any]) -> None:
    check(expr, columns, type_, expected)


def test_an_error_in_a_branch_that_is_taken() -> None:
    fails(when(A > 1).then(1 // (A - 2)).otherwise(0), INTS, "int division by zero", "1 of 3 rows", "first row 1")
    fails(when(1 // (A - 1) > 0).then(1).otherwise(0), INTS, "int division by zero")


@pytest.mark.parametrize(
    ("expr", "texts"),
    [
        (when(A).then(1), ["when", "bool", "int"]),
        (when("x").then(1), ["when", "bool", "str"]),
        (when(A > 1).then(1).otherwise("x"), ["when", "int", "str"]),
        (when(A > 1).then(1).when(A > 0).then(True), ["when", "int", "bool"]),
        (when(col("z") > 1).then(1), ["'z'"]),
    ],
    ids=str,
)
def test_refused(expr: Expr, texts: list[str]) -> None:
    refused(expr, INTS, *texts)


def test_when_needs_then() -> None:
    waiting = when(A > 1)
    for use in (
        lambda: waiting.typeof({"a": int}),
        lambda: waiting.astype(int),
    ):
        with pytest.raises(InvalidExprException, match=r"when without then, in `when\(col"):
            use()
    with pytest.raises(InvalidExprException, match="when without then"):
        A + waiting
    with pytest.raises(InvalidExprException, match="when without then"):
        waiting + A
    with pytest.raises(InvalidExprException, match="when without then"):
        when(A > 1).then(waiting)


def test_otherwise_is_last() -> None:
    done = when(A > 1).then(1).otherwise(2)
    with pytest.raises(InvalidExprException, match="otherwise"):
        done.otherwise(3)
    with pytest.raises(InvalidExprException, match="otherwise"):
        done.when(A > 0)
    with pytest.raises(InvalidAttribute):
        done.then(1)


@pytest.mark.parametrize(
    "use",
    [
        lambda c: c + 1,
        lambda c: 1 - c,
        lambda c: c & True,
        lambda c: -c,
        lambda c: c > 1,
        lambda c: bool(c),
        lambda c: c[0],
    ],
)
def test_a_condition_without_then_is_no_operand(use: Any) -> None:
    with pytest.raises(InvalidExprException, match="when without then"):
        use(when(col("a") > 1))


SCHEMA = {"i": int, "b": bool, "o": Optional[int]}

ALONE = when(col("b"))


def test_when_alone_goes_on_with_then() -> None:
    chosen = ALONE.then(1)
    assert chosen.when(col("o").isnull()).then(2).otherwise(3).typeof(SCHEMA) is int
    assert chosen.typeof(SCHEMA) == Optional[int]


@pytest.mark.parametrize("method", ["when", "otherwise", "els", "select"])
def test_when_alone_has_no(method: str) -> None:
    for alone in (ALONE, ALONE.then(1).when(col("b"))):
        with refusal(AttributeError, method, "then", at=False):
            getattr(alone, method)(col("b"))


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


@pytest.mark.parametrize("use", USES)
def test_when_alone_is_no_expression(use: str) -> None:
    with pytest.raises(InvalidExprException):
        USES[use](ALONE)


def many(branches: int) -> Expr:
    """Return a choice among so many branches; one has a null, and the others may have errors."""
    choice = when(A == 0).then(lit(7))
    for number in range(1, branches):
        choice = choice.when(A == number).then(lit(None) if number == 5 else number // (B - number))
    return choice.otherwise(-1)


def test_first_true_branch_of_many_is_chosen() -> None:
    frame = {"a": [*range(41), None, 30], "b": [50] * 42 + [30]}
    values = pd.DataFrame({"a": pd.array(frame["a"], "Int64"), "b": frame["b"]})
    schema = {"a": Optional[int], "b": int}
    found = many(40).eval(values[:42], schema).tolist()
    expected = [7, *(number // (50 - number) for number in range(1, 40)), -1, -1]
    assert [None if each is pd.NA else each for each in found] == [*expected[:5], None, *expected[6:]]
    with pytest.raises(ValueError, match=r"1 of 43 rows, first row 42"):
        many(40).eval(values, schema)


def test_many_branches_are_not_nested_in_each_other() -> None:
    """Polars takes time in proportion to the square of the depth of an expression."""

    def depth(compiled: Any) -> int:
        texts = [str(each) for each in (compiled.value, *(error.condition for error in compiled.errors))]
        bounds = [[{"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0) for letter in text] for text in texts]
        return max(max(accumulate(each)) for each in bounds)

    scope = Scope({"a": Int(), "b": Int()}, pl.lit(None))
    assert depth(many(80).compile(scope)) < 2 * depth(many(16).compile(scope)) < 200


def test_conditions_are_repeated_for_branches_with_errors_only(monkeypatch: pytest.MonkeyPatch) -> None:
    operands, any_horizontal = list[int](), pl.any_horizontal

    def counted(exprs: Any) -> pl.Expr:
        listed = list(exprs)
        operands.append(len(listed))
        return any_horizontal(listed)

    monkeypatch.setattr(pl, "any_horizontal", counted)
    choice = when(A == 0).then(lit(0))
    for number in range(1, 200):
        choice = choice.when(A == number).then(number)
    assert choice.compile(Scope({"a": Int()}, pl.lit(None))).errors == ()
    assert sum(operands) < 200 * 8, "200 for each branch"
