"""Every aggregate is a commutative monoid over its states, agrees with the naive reference, and can take rows back."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite, isinf, nan
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregating import INSTANT, STREAM, frame
from tests.comparing import assert_rows, same
from tests.profiles import examples
from tests.reference import Change, hashable, live, value
from umbel import aggregates
from umbel.aggregates import (
    Average,
    Count,
    Distinct,
    ExpDecaySum,
    FirstK,
    LastK,
    Max,
    Min,
    Quantile,
    Stddev,
    Sum,
)
from umbel.aggregates.aggregate import Aggregate
from umbel.windowing.partials import Partials

NUMBERS = ("x", "f", "d")
ALL: list[Aggregate] = [
    Count(),
    *(Count(of=of, dropnull=True) for of in ("x", "s")),
    *(Count(of=of, unique=True, approx=True, dropnull=drop) for of in ("x", "s", "d") for drop in (False, True)),
    *(Sum(of=of) for of in NUMBERS),
    *(Average(of=of) for of in NUMBERS),
    Average(of="f", default=None),
    *(Stddev(of=of) for of in NUMBERS),
    *(kind(of=of) for kind in (Min, Max) for of in NUMBERS),
    Min(of="x", default=-1),
    Max(of="d", default=Decimal("-1.00")),
    *(Quantile(of=of, p=p, approx=True) for of in NUMBERS for p in (0.0, 0.5, 0.9, 1.0)),
    Quantile(of="f", p=0.5, default=7.0, approx=True),
    *(ExpDecaySum(of=of, half_life="1h") for of in NUMBERS),
    *(
        kind(of=of, limit=3, dedup=dedup, dropnull=drop)
        for kind in (LastK, FirstK)
        for of in ("x", "s", "f")
        for dedup in (False, True)
        for drop in (False, True)
    ),
    *(Distinct(of=of, unordered=True, dropnull=drop) for of in ("x", "s", "d") for drop in (False, True)),
]
HOUR = 3_600_000_000
NAMED = [each.named(f"a{number}") for number, each in enumerate(ALL)]
MODES = [False, True]
INF, NAN = float("inf"), float("nan")

rows = st.builds(
    lambda time, x, f, d, s: (time, {"x": x, "f": f, "d": d, "s": s}),
    st.integers(0, 5 * 3600).map(lambda second: second * 1_000_000 // 3),
    st.none() | st.integers(-3, 3) | st.integers(-(2**62), 2**62),
    st.none() | st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, -0.0, 1e9, 0.1, NAN, INF, -INF]),
    st.none() | st.decimals(-1000, 1000, places=2),
    st.none() | st.sampled_from(["", "a", "b", "ab", "ä\0"]) | st.text(max_size=9),
)
histories = st.lists(rows, max_size=25).map(
    lambda drawn: [Change(time, time, values, 1, seq) for seq, (time, values) in enumerate(drawn)]
)


def partials(is_retractable: bool) -> Partials:
    return Partials.of(NAMED, STREAM, is_retractable=is_retractable)


def lifted(states: Partials, changes: list[Change], *, apart: bool = False) -> pl.DataFrame:
    """Return the state of all changes together, one row, or of each."""
    found = frame((1, change) for change in changes).with_columns(pl.col("t").dt.epoch("us").alias("_time_first"))
    begins = np.full(len(found), apart)
    begins[:1] = True
    return states.lift(found, begins, [pl.col("_weight").sum()])


def merged(states: Partials, parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Return the merge of states, one row."""
    both = pl.concat(parts)
    begins = np.zeros(len(both), np.bool_)
    begins[:1] = True
    return states.merge(both, begins, [pl.col("_weight").sum()])


def results(states: Partials, state: pl.DataFrame, now: int) -> list[Any]:
    requested = state.with_columns(pl.lit(now).cast(INSTANT).alias("_time"))
    return list(pl.DataFrame(states.results(requested, NAMED)).row(0)) if len(state) else [None] * len(NAMED)


def expected(changes: list[Change], now: int) -> list[Any]:
    left = live(changes)
    return [value(each, left, now) for each in ALL]


def magnitude(changes: list[Change]) -> float:
    return max(
        1.0,
        sum(
            abs(float(v))
            for c in changes
            for v in c.values.values()
            if v is not None and not isinstance(v, str) and isfinite(v)
        ),
    )


def fitting(changes: list[Change]) -> bool:
    """Return whether the sum of `x` fits 64 bits, as that of everything drawn together may not."""
    return abs(sum(change.values["x"] or 0 for change in live(changes))) < 2**63


def test_registry_is_complete() -> None:
    kinds = {name for name in aggregates.__all__ if not name.startswith("Aggregate")}
    assert kinds == {type(each).__name__ for each in ALL}


@pytest.mark.parametrize("is_retractable", MODES)
@given(changes=histories, cut=st.integers(0, 25), now=st.integers(2 * HOUR, 30 * HOUR))
@examples(10)
def test_agrees_with_reference_whole_and_merged(
    is_retractable: bool, changes: list[Change], cut: int, now: int
) -> None:
    if not changes or not fitting(changes):
        return
    states = partials(is_retractable)
    whole = lifted(states, changes)
    parts = [lifted(states, part) for part in (changes[:cut], changes[cut:]) if part]
    for state in (whole, merged(states, parts), merged(states, parts[::-1])):
        assert_rows(results(states, state, now), expected(changes, now), magnitude(changes), changes)


@pytest.mark.parametrize("is_retractable", MODES)
@given(changes=histories, order=st.randoms(use_true_random=False))
@examples(8)
def test_state_is_function_of_the_set(is_retractable: bool, changes: list[Change], order: Any) -> None:
    if not changes:
        return
    states = partials(is_retractable)
    shuffled = list(changes)
    order.shuffle(shuffled)
    each = lifted(states, shuffled, apart=True)
    forward, halves = merged(states, [each]), [merged(states, [part]) for part in (each[::2], each[1::2]) if len(part)]
    assert_states(states, forward, merged(states, halves), magnitude(changes))
    assert_states(states, forward, lifted(states, changes), magnitude(changes))


def assert_states(states: Partials, one: pl.DataFrame, other: pl.DataFrame, magnitude: float) -> None:
    """Assert that states are the same to the bit, but for float sums."""
    for name, dtype in states.columns.items():
        a, b = one[name].to_list(), other[name].to_list()
        if dtype == pl.Float64 and not name.endswith("extreme"):
            scale = magnitude**2 if name.endswith("squares") else magnitude
            # the centre of values that are no finite numbers is any such: the deviation is NaN
            pairs = (
                (nan if x is not None and name.endswith("center") and isinf(x) else x for x in each) for each in (a, b)
            )
            assert all(same(x, y, scale) for x, y in zip(*pairs, strict=True)), (name, a, b)
        else:
            assert hashable(a) == hashable(b), name


@given(
    retained=histories, taken=histories, order=st.randoms(use_true_random=False), now=st.integers(2 * HOUR, 9 * HOUR)
)
@examples(10)
def test_retracted_rows_leave_nothing(retained: list[Change], taken: list[Change], order: Any, now: int) -> None:
    states = partials(is_retractable=True)
    gone = [Change(c.at, c.time, c.values, 1, c.seq + 1000) for c in taken]
    changes = [*retained, *gone, *(Change(c.at, c.time, c.values, -1, c.seq) for c in gone)]
    if not changes or not fitting(retained):
        return
    order.shuffle(changes)
    state = merged(states, [lifted(states, changes, apart=True)])
    for each in (state, states.settle(state)):
        found, required = results(states, each, now), expected(retained, now)
        for place, aggregate in enumerate(ALL):
            if isinstance(aggregate, Stddev) and isfinite(
                required[place]
            ):  # its variance is as good as the squares that were there
                off = found[place] * abs(found[place]) - required[place] * abs(required[place])
                assert abs(off) <= 1e-9 * magnitude(changes) ** 2
                found[place] = required[place]
        assert_rows(found, required, magnitude(changes), changes)


@given(changes=histories)
@examples(8)
def test_settling_is_idempotent(changes: list[Change]) -> None:
    if not changes:
        return
    states = partials(is_retractable=True)
    once = states.settle(lifted(states, changes))
    assert states.settle(once).equals(once)


def test_nothing_has_the_empty_value() -> None:
    for is_retractable in MODES:
        states = partials(is_retractable)
        nothing = pl.DataFrame({"_weight": [0]}).with_columns(states.empty())
        assert_rows(results(states, nothing, 0), expected([], 0))


@pytest.mark.parametrize("many", [500, 2_000, 2_049, 20_000, 300_000])
def test_unique_count_error(many: int) -> None:
    states = Partials.of([Count(of="x", unique=True, approx=True, into_field="n")], STREAM, is_retractable=False)
    errors = []
    for salt in range(5):
        values = pl.int_range(salt * 10**9, salt * 10**9 + many, eager=True)
        rows = pl.DataFrame({"x": values, "_weight": pl.repeat(1, many, dtype=pl.Int64, eager=True)})
        begins = np.zeros(many, np.bool_)
        begins[:: many // 4 + 1] = True
        parts = states.lift(rows, begins, [pl.col("_weight").sum()])
        (found,) = states.results(
            merged(states, [parts, parts]), [Count(of="x", unique=True, approx=True, into_field="n")]
        )
        errors.append(abs(found[0] - many) / many)
    assert max(errors) <= (0.0 if many <= 2_048 else 0.02)


@pytest.mark.parametrize("p", [0.0, 0.01, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("shape", ["lognormal", "normal", "uniform", "mixed"])
def test_quantile_error(p: float, shape: str) -> None:
    rng = np.random.default_rng(3)
    drawn = {
        "lognormal": rng.lognormal(0, 4, 20_000),
        "normal": rng.normal(0, 1, 20_000),
        "uniform": rng.uniform(1e6, 1e6 + 1, 20_000),
        "mixed": np.concatenate([np.zeros(5000), -rng.lognormal(0, 9, 5000), rng.integers(-9, 9, 10_000)]),
    }[shape]
    required = Quantile(of="f", p=p, approx=True, into_field="q")
    states = Partials.of([required], STREAM, is_retractable=False)
    rows = pl.DataFrame({"f": drawn, "_weight": np.ones(len(drawn), np.int64)})
    begins = np.arange(len(drawn)) % 1000 == 0
    parts = states.lift(rows, begins, [pl.col("_weight").sum()])
    (found,) = states.results(merged(states, [parts]), [required])
    exact = np.sort(drawn)[min(len(drawn) - 1, int(p * len(drawn)))]
    assert abs(found[0] - exact) <= 0.01 * abs(exact)
