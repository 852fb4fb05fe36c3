"""Sums of many ints: partial sums that do not fit in 64 bits, and the time they take."""

from __future__ import annotations

import time
from random import Random

import polars as pl
import pytest

from tests.unit.refusals import refusal
from umbel.errors import InvalidValue
from umbel.expr import Expr, col
from umbel.expr.evaluate import evaluate, judge
from umbel.expr.sums import LONG
from umbel.types.dtypes import Int, Optional

MOST = 2**63 - 1


def long_sum(terms: int) -> tuple[Expr, list[str]]:
    """Return a sum whose terms are added and subtracted in turn, and their columns."""
    names = [f"c{number}" for number in range(terms)]
    found = col(names[0])
    for number, name in enumerate(names[1:]):
        found = found - col(name) if number % 2 else found + col(name)
    return found, names


@pytest.mark.parametrize("terms", [LONG - 1, LONG, LONG + 1, 3 * LONG])
def test_a_long_sum_is_right_or_an_error_of_its_row(terms: int) -> None:
    expr, names = long_sum(terms)
    chance = Random(terms)
    choices = [0, 1, -1, MOST, -MOST - 1, MOST // 2, None, *range(-9, 9)]
    rows = [[chance.choice(choices) if chance.random() < 4 / terms else 2 for _ in names] for _ in range(300)]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row")
    found = judge(frame, expr, Optional(Int()), dict.fromkeys(names, Optional(Int())))
    wrong = set()
    for number, (first, *others) in enumerate(rows):
        total = first
        for place, other in enumerate(others):
            total = None if total is None or other is None else total - other if place % 2 else total + other
            if total is not None and not -MOST - 1 <= total <= MOST:
                wrong.add(number)
                break
        assert number in wrong or found.values[number] == total
    assert found.errors.keys() == wrong
    assert 20 < len(wrong) < 280


def test_sums_in_a_long_sum_have_errors_of_their_own() -> None:
    expr, names = long_sum(2 * LONG)
    columns = {name: [1] for name in names} | {"x": [MOST]}
    inner = expr + (col("x") + 1 - 1)
    with refusal(InvalidValue, 'the int does not fit in 64 bits, in `col("x") + 1`'):
        evaluate(pl.DataFrame(columns), {"sum": (inner, None)}, dict.fromkeys(columns, Int()))


def test_the_time_of_a_long_sum_does_not_grow_with_its_third_power() -> None:
    def seconds(terms: int) -> float:
        expr, names = long_sum(terms)
        frame, begun = pl.DataFrame({key: [1] for key in names}), time.process_time()
        for _ in range(3):
            evaluate(frame, {"sum": (expr, None)}, dict.fromkeys(names, Int()))
        return time.process_time() - begun

    seconds(20)
    assert seconds(120) < 25 * max(seconds(30), 0.003), "64 times, if it did"
