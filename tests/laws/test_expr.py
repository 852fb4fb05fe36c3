"""Laws of expressions: they equal plain Python row by row, nulls go through, rows do not see each other."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import umbel.expr as expressions
from tests.laws.naive_expr import NoValue, value
from tests.profiles import examples
from tests.unit.expr.table import in_steps
from umbel.errors import InvalidValue
from umbel.expr import Expr, col, evaluate, lit, var, when
from umbel.expr.call import call
from umbel.expr.kinds import Constant, Kind
from umbel.expr.registry import FUNCTIONS, Function
from umbel.types.dtypes import Bool, Datetime, Dict, DType, Float, Int, List, Optional, Str, Struct

# ---- random expressions against plain Python ------------------------------------------------------------------------

TYPES: dict[str, DType] = {
    "i": Optional(Int()), "j": Int(), "f": Optional(Float()), "g": Float(), "b": Optional(Bool()), "c": Bool(),
    "s": Optional(Str()), "t": Str(), "l": Optional(List(Optional(Int()))), "m": List(Bool()),
}  # fmt: skip
INTS = st.one_of(st.integers(-4, 4), st.integers(-(2**63), 2**63 - 1))
FLOATS = st.sampled_from([0.0, 0.5, -0.5, 1.0, 2.5, -2.5, 7.0, -3.25, 1e10])
TEXTS = st.text("aBß,é😀", max_size=4)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | INTS,
            "j": INTS,
            "f": st.none() | FLOATS,
            "g": FLOATS,
            "b": st.none() | st.booleans(),
            "c": st.booleans(),
            "s": st.none() | TEXTS,
            "t": TEXTS,
            "l": st.none() | st.lists(st.none() | st.integers(-3, 3), max_size=3),
            "m": st.lists(st.booleans(), max_size=3),
        }
    ),
    max_size=4,
)


def whole(depth: int) -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([col("i"), col("j")]) | st.integers(-3, 3).map(lit)
    if not depth:
        return leaves
    less, text, flag = whole(depth - 1), words(depth - 1), truths(depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda a, b: a + b, less, less),
        st.builds(lambda a, b: a - b, less, less),
        st.builds(lambda a, b: a * b, less, less),
        st.builds(lambda a, b: a // b, less, less),
        st.builds(lambda a, b: a % b, less, less),
        st.builds(lambda a: -a, less),
        st.builds(lambda a: a.abs(), less),
        st.builds(lambda a: a.round(), reals(depth - 1)),
        st.builds(lambda a: a.floor(), reals(depth - 1)),
        st.builds(lambda a, b: a.fillnull(b), less, less),
        st.builds(lambda c, a, b: when(c).then(a).otherwise(b), flag, less, less),
        st.builds(lambda c, a, d, b: when(c).then(a).when(d).then(b), flag, less, flag, less),
        st.builds(lambda s: s.str.len(), text),
        st.sampled_from([col("l").list.sum(), col("l").list.min(), col("l").list.at(-1), col("m").list.len()]),
    )


def reals(depth: int) -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([col("f"), col("g")]) | FLOATS.map(lit)
    if not depth:
        return leaves
    less = reals(depth - 1)
    small = st.sampled_from([col("m").list.len(), lit(3)])
    return st.one_of(
        leaves,
        st.builds(lambda a, b: a + b, less, less | small),
        st.builds(lambda a, b: a * b, less, less | small),
        st.builds(lambda a, b: a / b, less | small, less | small),
        st.builds(lambda a, b: a // b, less, less),
        st.builds(lambda a: a.abs(), less),
        st.builds(lambda a, b: a.fillnull(b), less, less),
        st.builds(lambda c, a, b: when(c).then(a).otherwise(b), truths(depth - 1), less, less),
    )


def truths(depth: int) -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([col("b"), col("c"), lit(True)])
    if not depth:
        return leaves
    less, number, text = truths(depth - 1), whole(depth - 1) | reals(depth - 1), words(depth - 1)
    exact = whole(depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda a, b: a & b, less, less),
        st.builds(lambda a, b: a | b, less, less),
        st.builds(lambda a: ~a, less),
        st.builds(lambda a: a.isnull(), number | text | less),
        st.builds(lambda a, b: a == b, exact, exact),
        st.builds(lambda a, b: a != b, reals(depth - 1), reals(depth - 1)),
        st.builds(lambda a, b: a < b, reals(depth - 1), reals(depth - 1)),
        st.builds(lambda a, b: a >= b, exact, exact),
        st.builds(lambda a, b: a == b, text, text),
        st.builds(lambda a, b: a.str.contains(b), text, text),
        st.builds(lambda a, b: a.str.endswith(b), text, text),
        st.builds(lambda a: col("l").list.contains(a), exact),
        st.sampled_from([col("m").list.any(), col("m").list.all(), col("l").list.hasnull()]),
    )


def words(depth: int) -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([col("s"), col("t"), lit("a"), lit("")])
    if not depth:
        return leaves
    less = words(depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda a: a.str.upper(), less),
        st.builds(lambda a, b: a.str.concat(b), less, less),
        st.builds(lambda a, b: a.str.split(b).list.at(0).fillnull("none"), less, less),
        st.builds(lambda c, a, b: when(c).then(a).otherwise(b), truths(depth - 1), less, less),
    )


EXPRESSIONS = st.one_of(whole(3), reals(3), truths(3), words(3))


def frame_of(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={name: dtype.polars() for name, dtype in TYPES.items()})


def close(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-9)
    return type(left) is type(right) and left == right


@examples(300)
@given(EXPRESSIONS, ROWS)
def test_the_same_as_plain_python(expr: Expr, rows: list[dict[str, Any]]) -> None:
    frame = frame_of(rows)
    try:
        expected = [value(expr, row) for row in rows]
    except NoValue:
        with pytest.raises(InvalidValue, match="failed to evaluate"):
            evaluate(frame, {"v": (expr, None)}, TYPES)
        with in_steps(), pytest.raises(InvalidValue, match="failed to evaluate"):
            evaluate(frame, {"v": (expr, None)}, TYPES)
        return
    except OverflowError:
        assume(False)
    found = evaluate(frame, {"v": (expr, None)}, TYPES)["v"]
    with in_steps():
        assert evaluate(frame, {"v": (expr, None)}, TYPES)["v"].equals(found, null_equal=True)
    dtype = expr.dtype(TYPES)
    expected = [float(each) if isinstance(dtype.plain, Float) and each is not None else each for each in expected]
    assert found.dtype == dtype.polars()
    assert all(map(close, found.to_list(), expected)), (found.to_list(), expected)
    if not dtype.is_optional and not isinstance(dtype.plain, Int):
        assert None not in expected


@examples(100)
@given(EXPRESSIONS)
def test_text_and_record_say_all(expr: Expr) -> None:
    record = json.loads(json.dumps(expr.to_record()))
    assert Expr.from_record(record).to_record() == record
    names = {name: getattr(expressions, name) for name in expressions.__all__}
    assert eval(str(expr), names).to_record() == record


# ---- laws over the whole registry -----------------------------------------------------------------------------------

INSTANT = datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC)
POINT = Struct("P", (("x", Int()), ("y", Optional(Str()))))
CONSTANTS: dict[str, Any] = {
    "precision": 1, "unit": "second", "timezone": "Europe/Paris", "path": "$.a", "type": Int(), "field": "x",
    "int": 1, "variable": "v", "names": ["x", "y"], "struct": POINT,
}  # fmt: skip
FORMATS = {"str.strptime": "%Y-%m-%d", "dt.strftime": "%Y"}
# By the kind's name: a type, and values that no function fails on.
OPERANDS: dict[str, tuple[DType, list[Any]]] = {
    "int or float": (Int(), [1, 2, 3]),
    "int": (Int(), [1, 2, 3]),
    "int that is not Optional": (Int(), [0, 1, 2]),
    "float": (Float(), [0.5, 1.5, 2.0]),
    "bool": (Bool(), [True, False, True]),
    "str": (Str(), ["1", "2", "3"]),
    "datetime": (Datetime(), [INSTANT] * 3),
    "list": (List(Int()), [[1, 2], [], [3]]),
    "list of int or float": (List(Int()), [[1, 2], [], [3]]),
    "list of bool": (List(Bool()), [[True], [], [False, True]]),
    "struct": (POINT, [{"x": 1, "y": "a"}, {"x": 2, "y": None}, {"x": 3, "y": ""}]),
    "dict": (Dict(Int()), [[{"key": "1", "value": 5}], [], [{"key": "2", "value": 6}]]),
    "any": (Int(), [1, 2, 3]),
}
TEXT_OPERANDS = {"str.strptime": ["2024-01-01"] * 3, "str.parse": ["1", "2", "3"]}
BODIES = {"list.map": var("v") + 1, "list.filter": var("v") > 1}
SPECIAL = {"getitem", "datetime", "make_struct", "zip_struct"}
# Functions that make something of a null operand, as their documentation says.
ABSORB = {"and", "or", "list.contains", "dict.get", "fillnull", "isnull", "repeat", "make_struct", "zip_struct"}
REGISTERED = sorted(set(FUNCTIONS) - SPECIAL)


def sample(function: Function) -> tuple[Expr, dict[str, DType], pl.DataFrame]:
    """Return a call of a function on columns c0, c1, ... of the right kinds."""
    arguments: list[Any] = []
    types: dict[str, DType] = {}
    values: dict[str, pl.Series] = {}
    for role in function.roles.values():
        if isinstance(role, Kind):
            name = f"c{len(types)}"
            dtype, rows = OPERANDS[role.name]
            types[name] = dtype
            values[name] = pl.Series(TEXT_OPERANDS.get(function.key, rows), dtype=dtype.polars())
            arguments.append(col(name))
        elif isinstance(role, Constant):
            arguments.append(FORMATS[function.key] if role.name == "format" else CONSTANTS[role.name])
        else:
            arguments.append(BODIES[function.key])
    return call(function.key, tuple(arguments), {}), types, pl.DataFrame(values)


def test_every_kind_and_constant_is_sampled() -> None:
    for key in REGISTERED:
        sample(FUNCTIONS[key])


@pytest.mark.parametrize("key", REGISTERED)
def test_the_type_is_that_of_the_values(key: str) -> None:
    expr, types, frame = sample(FUNCTIONS[key])
    found = evaluate(frame, {"v": (expr, None)}, types)["v"]
    assert found.dtype == expr.dtype(types).polars()
    assert frame.select(v=expr.polars(types))["v"].equals(found, null_equal=True)


@pytest.mark.parametrize("key", sorted(set(REGISTERED) - ABSORB))
def test_null_in_null_out(key: str) -> None:
    expr, types, frame = sample(FUNCTIONS[key])
    kinds = FUNCTIONS[key].kinds(len(types))
    for name, kind in zip(types, kinds, strict=True):
        if not kind.optional:
            continue
        holes = frame.with_columns(pl.when(pl.int_range(pl.len()) != 1).then(pl.col(name)).alias(name))
        schema = {**types, name: Optional(types[name])}
        assert expr.dtype(schema).is_optional
        whole_, found = (evaluate(each, {"v": (expr, None)}, schema)["v"].to_list() for each in (frame, holes))
        assert all(map(close, found, [whole_[0], None, whole_[2]]))


@pytest.mark.parametrize("key", REGISTERED)
def test_rows_do_not_see_each_other(key: str) -> None:
    expr, types, frame = sample(FUNCTIONS[key])
    together = evaluate(frame, {"v": (expr, None)}, types)["v"]
    apart = [evaluate(frame[row : row + 1], {"v": (expr, None)}, types)["v"] for row in range(frame.height)]
    assert together.equals(pl.concat(apart), null_equal=True)
    assert evaluate(frame.clear(), {"v": (expr, None)}, types)["v"].dtype == together.dtype


@pytest.mark.parametrize("key", REGISTERED)
def test_records_and_text(key: str) -> None:
    expr, _, _ = sample(FUNCTIONS[key])
    record = json.loads(json.dumps(expr.to_record()))
    again = Expr.from_record(record)
    assert again.to_record() == record
    assert str(again) == str(expr)


@pytest.mark.parametrize("key", REGISTERED)
def test_operands_of_other_kinds_are_refused(key: str) -> None:
    function = FUNCTIONS[key]
    expr, types, _ = sample(function)
    for name, kind in zip(types, function.kinds(len(types)), strict=True):
        if kind.plain:
            other = Str() if kind.name != "str" else Bool()
            with pytest.raises(InvalidValue, match="failed to compile expression") as caught:
                expr.dtype({**types, name: other})
            assert function.shown in str(caught.value)
            assert str(other) in str(caught.value)
