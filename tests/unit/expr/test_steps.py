"""Expressions that use parts several times: each part is computed once, and says its errors."""

from __future__ import annotations

import json
import time

import polars as pl
import pytest

from tests.unit.expr.table import frame_of, schema_of
from tests.unit.refusals import refusal
from umbel.errors import InvalidValue
from umbel.expr import Expr, col, evaluate, judge, lit, var, when
from umbel.expr.steps import steps_of
from umbel.types.dtypes import Float, Int, List, Optional

MOST = 2**63 - 1
ROWS = {"a": (int, [0, 40, 60, -7, MOST, 90]), "b": (int, [3, 9, -200, 5, 1, 0])}


def limited(value: Expr, steps: int) -> Expr:
    """Return a score that is limited to 0 to 100 in each step, as fraud rules write it."""
    for _ in range(steps):
        value = value * 2 - col("b")
        value = when(value > 100).then(100).when(value < 0).then(0).otherwise(value)
    return value


def limited_number(value: int, by: int, steps: int) -> int:
    for _ in range(steps):
        value = min(max(value * 2 - by, 0), 100)
    return value


@pytest.mark.parametrize("travels", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_a_score_that_is_limited_in_steps(steps: int, travels: bool) -> None:
    expr = limited(col("a"), steps)
    if travels:  # its parts are not the same objects any more
        expr = Expr.from_record(json.loads(json.dumps(expr.to_record())))
    start = time.monotonic()
    found = judge(frame_of(ROWS), expr, Int(), schema_of(ROWS))
    assert time.monotonic() - start < 5  # four steps took 4 s and 1.7 GB, five more than there was
    a, b = (list(values) for _, values in ROWS.values())
    assert set(found.errors) == {4}
    assert "the int does not fit in 64 bits, in `" in found.errors[4]
    for row in (0, 1, 2, 3, 5):
        assert found.values[row] == limited_number(a[row], b[row], steps)


def test_the_error_of_a_repeated_part_names_it_and_its_rows() -> None:
    with pytest.raises(InvalidValue) as caught:
        evaluate(frame_of(ROWS), {"score": (limited(col("a"), 4), Int())}, schema_of(ROWS))
    assert 'the int does not fit in 64 bits, in `col("a") * 2` (1 of 6 rows, first row 4)' in str(caught.value)


def test_an_error_of_a_part_counts_on_rows_that_need_it() -> None:
    part = col("a") // col("b")
    for _ in range(6):
        part = part + part
    expr = when(col("b") != 0).then(part).otherwise(-1)
    assert steps_of([expr]) is not None
    found = judge(frame_of({"a": (int, [3, 3, 2**60]), "b": (int, [0, 1, 1])}), expr, Int(), schema_of(ROWS))
    assert (found.values[0], found.values[1]) == (-1, 3 * 64)
    assert found.errors.keys() == {2}


def test_each_of_several_errors_is_of_its_own_part() -> None:
    part = (col("a") // col("b")) * 2
    for _ in range(6):
        part = part * part - part
    columns = {"a": (int, [1, 2**62, 0, 10**9]), "b": (int, [0, 1, 1, 1])}
    found = judge(frame_of(columns), part, Int(), schema_of(columns))
    assert found.values[2] == 0
    assert found.errors[0] == 'int division by zero or overflow, in `col("a") // col("b")`'
    assert found.errors[1] == 'the int does not fit in 64 bits, in `(col("a") // col("b")) * 2`'
    assert found.errors[3].startswith("the int does not fit in 64 bits, in `")


def test_parts_that_two_expressions_share() -> None:
    expr = limited(col("a"), 3)
    found = evaluate(frame_of(ROWS).clear(), {"x": (expr, Int()), "y": (-expr, Int())}, schema_of(ROWS))
    assert found.schema == {"x": pl.Int64, "y": pl.Int64}
    rows = frame_of(ROWS).filter(pl.col("a") < MOST)
    found = evaluate(rows, {"x": (expr, Int()), "y": (-expr, Int())}, schema_of(ROWS))
    assert found["x"].to_list() == [-each for each in found["y"]]


def test_constants_alone() -> None:
    expr = lit(1.0)
    for _ in range(8):
        expr = expr + expr
    assert evaluate(pl.DataFrame(height=2), {"v": (expr, Float())}, {})["v"].to_list() == [256.0, 256.0]


def test_equal_texts_of_other_types_are_different_parts() -> None:
    one, other = col("a").fillnull(1), col("a").fillnull(1.0)
    for _ in range(6):
        one, other = one + one, other + other
    expr = when(col("b") > 0).then(one / 1).otherwise(other)
    types = {"a": Optional(Float()), "b": Int()}
    rows = pl.DataFrame({"a": [0.5, None, 0.5], "b": [1, 1, 0]}, schema={"a": pl.Float64, "b": pl.Int64})
    assert evaluate(rows, {"v": (expr, None)}, types)["v"].to_list() == [32.0, 64.0, 32.0]
    zeros = when(col("b") > 0).then(lit(0.0)).otherwise(lit(-0.0))
    for _ in range(6):
        zeros = zeros + zeros
    assert [str(each) for each in evaluate(rows, {"v": (zeros, None)}, types)["v"]] == ["0.0", "0.0", "-0.0"]


def test_parts_over_the_elements_of_lists_are_limited_in_number() -> None:
    types = {"l": List(Int()), "b": Int()}
    rows = pl.DataFrame({"l": [[10, 20]], "b": [1]})
    found = evaluate(rows, {"v": (col("l").list.map("x", limited(var("x"), 2)), None)}, types)["v"]
    assert found.to_list() == [[limited_number(10, 1, 2), limited_number(20, 1, 2)]]
    with refusal(InvalidValue, "the expression over the elements of a list has", "a .list.map for each part"):
        col("l").list.map("x", limited(var("x"), 6)).dtype(types)


def test_an_expression_of_too_many_operators_is_refused_at_once() -> None:
    start = time.thread_time()
    with refusal(InvalidValue, "operators, columns and constants", "in steps"):
        limited(col("a"), 30).dtype(schema_of(ROWS))
    assert time.thread_time() - start < 1


def test_the_text_of_a_large_expression_in_an_error_is_shortened() -> None:
    expr = limited(col("a"), 6) * MOST
    with pytest.raises(InvalidValue) as caught:
        evaluate(frame_of(ROWS)[:1].with_columns(a=pl.lit(50)), {"score": (expr, Int())}, schema_of(ROWS))
    assert "the int does not fit in 64 bits, in `" in caught.value.message
    assert len(caught.value.message) < 2500
