"""Every registered aggregate is a commutative monoid and can take rows back: umbel's own, and those of installed packages.

What an aggregate gives is compared with a naive reference in `test_aggregates`, for umbel's own alone.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregating import INSTANT, STREAM, frame
from tests.comparing import assert_rows
from tests.profiles import examples
from tests.reference import Change
from umbel.aggregates.aggregate import AGGREGATES, Aggregate
from umbel.errors import UmbelError
from umbel.windowing.partials import Partials

ARGUMENTS = {
    "dropnull": False,
    "limit": 3,
    "p": 0.5,
    "half_life": "1h",
    "approx": True,
    "unordered": True,
    "dedup": False,
}
"""Values of arguments by name; `of` is tried on all columns."""
HOUR = 3_600_000_000
LATER = 30 * HOUR


def instances(kind: type[Aggregate]) -> list[Aggregate]:
    """Return an aggregate for every column that it takes."""
    required = {each.name for each in fields(kind) if each.init and each.default is MISSING} | (
        {"approx"} & names(kind)
    )
    arguments = {name: ARGUMENTS[name] for name in required - {"of"}}
    found = []
    for of in ("x", "f", "d", "s") if "of" in names(kind) else (None,):
        aggregate = kind(**arguments, **({"of": of} if of else {})).named("a")
        try:
            aggregate.check(STREAM)
            aggregate.result_type(STREAM)
        except UmbelError:
            continue
        found.append(aggregate)
    return found


def names(kind: type[Aggregate]) -> set[str]:
    """Return the names of the arguments of a class."""
    return {each.name for each in fields(kind) if each.init}


KINDS = [kind for kind in AGGREGATES.every() if not kind.__subclasses__()]
ALL = [each for kind in KINDS for each in instances(kind)]
rows = st.builds(
    lambda second, x, f, d, s: (second * 1_000_000, {"x": x, "f": f, "d": d, "s": s}),
    st.integers(0, 5 * 3600),
    st.none() | st.integers(-1000, 1000),
    st.none() | st.floats(-1e3, 1e3, width=32),
    st.none() | st.decimals(-1000, 1000, places=2),
    st.none() | st.sampled_from(["", "a", "b", "ab"]),
)
histories = st.lists(rows, min_size=1, max_size=20).map(
    lambda drawn: [Change(time, time, values, 1, seq) for seq, (time, values) in enumerate(drawn)]
)


def name(aggregate: Aggregate) -> str:
    return f"{aggregate.kind}-{aggregate.column}"


def lifted(states: Partials, changes: list[Change]) -> pl.DataFrame:
    """Return the state of each change, as if it came alone."""
    found = frame((1, change) for change in changes).with_columns(pl.col("t").dt.epoch("us").alias("_time_first"))
    return states.lift(found, np.ones(len(found), np.bool_), [pl.col("_weight").sum()])


def result(states: Partials, aggregate: Aggregate, parts: pl.DataFrame) -> Any:
    """Return the value of the merge of states."""
    begins = np.zeros(len(parts), np.bool_)
    begins[:1] = True
    state = states.merge(parts, begins, [pl.col("_weight").sum()])
    requested = state.with_columns(pl.lit(LATER).cast(INSTANT).alias("_time"))
    return pl.DataFrame(states.results(requested, [aggregate])).row(0)[0]


def test_every_aggregate_is_here() -> None:
    assert {type(each) for each in ALL} == set(KINDS)


@pytest.mark.parametrize("is_retractable", [False, True])
@pytest.mark.parametrize("aggregate", ALL, ids=name)
@given(changes=histories, order=st.randoms(use_true_random=False), cut=st.integers(1, 19))
@examples(5)
def test_the_order_of_merging_is_nothing(
    aggregate: Aggregate, is_retractable: bool, changes: list[Change], order: Any, cut: int
) -> None:
    states = Partials.of([aggregate], STREAM, is_retractable=is_retractable)
    shuffled = list(changes)
    order.shuffle(shuffled)
    each = lifted(states, shuffled)
    begins = np.zeros(len(each), np.bool_)
    begins[[0, *([cut] if cut < len(each) else [])]] = True
    halves = states.merge(each, begins, [pl.col("_weight").sum()])
    found = [result(states, aggregate, parts) for parts in (lifted(states, changes), each, halves)]
    assert_rows(found[1:], [found[0]] * 2, 1e6 * len(changes), changes)


@pytest.mark.parametrize("aggregate", ALL, ids=name)
@given(retained=histories, taken=histories)
@examples(5)
def test_what_is_retracted_was_never_there(aggregate: Aggregate, retained: list[Change], taken: list[Change]) -> None:
    states = Partials.of([aggregate], STREAM, is_retractable=True)
    gone = [Change(c.at, c.time, c.values, 1, c.seq + 1000) for c in taken]
    back = [Change(c.at, c.time, c.values, -1, c.seq) for c in gone]
    found = result(states, aggregate, lifted(states, [*gone, *retained, *back]))
    if aggregate.kind == "Stddev":  # its variance is as good as the squares that were there
        assert found**2 == pytest.approx(result(states, aggregate, lifted(states, retained)) ** 2, abs=1e-2, rel=1e-6)
        return
    assert_rows([found], [result(states, aggregate, lifted(states, retained))], 1e6 * len(retained + taken), retained)
