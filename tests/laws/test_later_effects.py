"""Rows of tables that take effect after their timestamps, as changes of a database do.

Aggregates are those of the rows in force, also where a key has none any more.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregating import TABLE, Job, aggregation, frame, instant
from tests.comparing import assert_rows
from tests.laws.test_tiles import (
    FOREVER,
    LONG,
    SECOND,
    SHORT,
    TILING,
    batches,
    check,
    tables,
    tilings,
    version_history,
)
from tests.profiles import examples
from tests.reference import Change, is_found, live, value
from umbel.aggregates import Average, Count, Sum
from umbel.windowing.tiling import Tiling

UNBOUNDED = (Count(window=FOREVER), Sum(of="x", window=FOREVER), Average(of="f", window=FOREVER))
delayed = st.lists(st.sampled_from([0, 1, 50, 3000, 90_000]).map(SECOND.__mul__), min_size=1, max_size=4)


@given(tiling=tilings, drawn=tables, order=st.randoms(use_true_random=False), delays=delayed)
@examples(40)
def test_rows_that_take_effect_after_their_instants(tiling: Tiling, drawn: Any, order: Any, delays: Any) -> None:
    changes = version_history(drawn, delays)
    job = Job(aggregation(*UNBOUNDED, keyed=True, tiling=tiling))
    for batch in batches(changes, order, 4):
        job.feed(frame(batch, TABLE))
    end = max(change.at for _, change in changes)
    requested = [(key, end + ahead) for key in (1, 2) for ahead in (0, SECOND)]
    found = job.lookup(requested)
    replayed = job.operator.replay(frame(changes, TABLE), job.points(requested))
    for place, (key, now) in enumerate(requested):
        rows = live(change for k, change in changes if k == key)
        is_there = is_found([c for k, c in changes if k == key], now)
        values = [value(each, rows, now) if is_there else each.missing for each in UNBOUNDED]
        names = [f"a{number}" for number in range(len(UNBOUNDED))]
        assert_rows(replayed.select(names).row(place), values, 1e3, f"offline {key}")
        if not found["_at_history"][place]:
            assert_rows(found.select(names).row(place), values, 1e3, f"online {key}")


def test_a_row_that_began_and_ended_behind_the_watermark_is_history() -> None:
    """A row that came later than its instant and one that ends cancel out: the tile of both was forgotten with its instants."""
    drawn = [(1, 1, tenth * SECOND // 10, (None, None)) for tenth in range(6)]
    changes = sorted(version_history(drawn, [0, 50 * SECOND]), key=lambda change: change[1].at)
    job = Job(aggregation(Count(window=SHORT), keyed=True, tiling=TILING))
    for batch in (changes[:9], changes[9:]):
        job.feed(frame(batch, TABLE), watermark=instant(batch[0][1].at - 1))
    check(job, changes, [(1, change.at) for _, change in changes], frame(changes, TABLE))


def test_a_key_whose_only_row_ended_behind_the_watermark_was_there() -> None:
    """Nothing was left of it: it was not found any more."""
    row, end = {"x": None, "f": None, "id": 1}, 90 * SECOND
    changes = [(1, Change(50 * SECOND, 0, row, 1, 0)), (1, Change(60 * SECOND, 0, row, -1, 0))]
    touch = (1, Change(end, end, {**row, "id": 2}, 1, 9))
    job = Job(aggregation(Count(window=SHORT), Count(window=FOREVER), keyed=True, tiling=TILING))
    job.feed(frame(changes, TABLE))
    job.feed(frame([touch], TABLE), watermark=instant(80 * SECOND))
    where = [(1, at * SECOND) for at in (40, 50, 59, 60, 61, 89, 90, 100, 101, 191)]
    check(job, [*changes, touch], where, frame([*changes, touch], TABLE))


def test_a_row_that_takes_effect_when_it_has_left_its_window_makes_its_key_known() -> None:
    """Nothing had changed the values ever, and the instant since when they have been these was in the year −144169."""
    drawn = [(1, 1, 0, (1, None)), (2, 2, 0, (1, None))]
    changes = version_history(drawn, [200 * SECOND])
    job = Job(aggregation(Count(window=SHORT), keyed=True, tiling=TILING))
    job.feed(frame(changes, TABLE))
    where = [(key, at * SECOND) for key in (1, 2) for at in (199, 200, 201, 400)]
    check(job, changes, where, frame(changes, TABLE))
    assert job.lookup([(1, 201 * SECOND)])["_at_changed"].to_list() == [instant(200 * SECOND)]


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("early", [3, 9])
def test_rows_that_take_effect_when_their_tile_is_leaving_do_not_round_what_was_before(
    early: int, moving: bool
) -> None:
    """History rounded by rows that took effect half an hour later, which no lookup had seen."""
    drawn = [(one, 1, one * SECOND // 2, (one, None)) for one in range(early + 9)]
    changes = version_history(drawn, [0] * early + [3000 * SECOND, 1500 * SECOND, 1510 * SECOND])
    changes.sort(key=lambda change: change[1].at)
    job = Job(aggregation(Count(window=LONG), Sum(of="x", window=LONG), keyed=True, tiling=TILING))
    for change in changes if moving else ():
        job.feed(frame([change], TABLE), watermark=instant(change[1].at - 1))
    if not moving:
        job.feed(frame(changes, TABLE))
    where = [(1, second * SECOND) for second in (2, 10, *range(1499, 1530), 2999, *range(3000, 3012), 4520)]
    check(job, changes, where, frame(changes, TABLE))
