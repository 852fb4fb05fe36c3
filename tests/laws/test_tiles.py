"""Continuous windows answer what the naive reference does, from a bounded state that is a function of the set of rows."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregating import TABLE, Job, aggregation, frame, instant
from tests.comparing import assert_rows
from tests.profiles import examples
from tests.reference import Change, changed, continuous, is_found, tiled
from umbel.aggregates import Average, Count, Distinct, ExpDecaySum, LastK, Max, Min, Quantile, Stddev, Sum
from umbel.types.windows import Continuous
from umbel.windowing.tiling import Tiling

SECOND = 1_000_000
ODD = (math.inf, -math.inf, math.nan)
SHORT, LONG, FOREVER = Continuous("100s"), Continuous("1500s"), Continuous("forever")
TILING = Tiling(disorder="3m")
TILINGS = (TILING, *(Tiling(share, exact, "3m") for share, exact in ((0.003, 3), (0.05, 2), (0.3, 1))))
tilings = st.sampled_from(TILINGS)
"""What deployments may have: the laws hold for all of them."""
MIXED = (
    Count(window=SHORT),
    Sum(of="x", window=SHORT),
    Min(of="x", window=SHORT),
    Count(window=LONG),
    LastK(of="x", limit=2, dedup=False, window=LONG),
    Average(of="f", window=LONG),
    ExpDecaySum(of="f", half_life="10m", window=LONG),
    Sum(of="x", window=FOREVER),
    Max(of="x", window=FOREVER),
    Stddev(of="f", window=FOREVER),
    Count(of="x", unique=True, approx=True, window=FOREVER),
    Distinct(of="x", unordered=True, window=FOREVER),
    Quantile(of="x", p=0.5, approx=True, window=FOREVER),
)
EXACT = (
    Count(window=SHORT),
    Sum(of="x", window=SHORT),
    Min(of="x", window=LONG),
    LastK(of="x", limit=2, dedup=True, window=LONG),
    Sum(of="x", window=FOREVER),
)
"""Aggregates whose states are compared to the bit."""

values = st.tuples(
    st.none() | st.integers(-5, 5), st.none() | st.integers(-20, 20).map(lambda n: n / 10) | st.sampled_from(ODD)
)
sparse = st.integers(0, 20_000).map(lambda n: n * SECOND // 10)


@st.composite
def bursts(draw: Any) -> list[tuple[int, int, tuple[Any, Any]]]:
    """Draw rows at many instants within a few seconds, so that tiles collapse."""
    key, base = draw(st.integers(1, 2)), draw(st.sampled_from([0, 3, 331, 1204])) * SECOND
    offsets = draw(st.lists(st.integers(0, 29), min_size=1, max_size=22))
    return [(key, base + offset * SECOND // 10, draw(values)) for offset in offsets]


rows = st.tuples(st.integers(1, 2), sparse, values)
streams = st.builds(
    lambda some, many: [*some, *(row for burst in many for row in burst)],
    st.lists(rows, min_size=1, max_size=25),
    st.lists(bursts(), max_size=3),
)
points = st.lists(st.tuples(st.integers(1, 3), st.integers(-10, 40_000).map(lambda n: n * SECOND // 10)), max_size=12)


def inserts(drawn: list[tuple[int, int, tuple[Any, Any]]]) -> list[tuple[int, Change]]:
    return [(key, Change(t, t, {"x": x, "f": f}, 1, seq)) for seq, (key, t, (x, f)) in enumerate(drawn)]


def instants(changes: list[tuple[int, Change]], requested: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return points: those drawn, and those at and around the instants at which rows come and go."""
    shifts = (-1, 0, *(n * SECOND for n in (99, 100, 101, 1500, 1501, 1502)))
    edges = [(key, c.time + shift) for key, c in [*changes[:3], *changes[-6::2]] for shift in shifts]
    return [*requested, *edges]


def expected(
    operator: Any, changes: list[tuple[int, Change]], key: int, now: int, *, entered: bool = False
) -> list[Any]:
    """Return found and the values of a point by the reference, rounded as tiles do."""
    mine = [change for k, change in changes if k == key]
    found = is_found(mine, now)
    row: list[Any] = [found]
    is_keyed = operator.parents[0].schema.is_keyed
    places = {
        each: tiled(mine, operator.tiling.grain(each), operator.tiling.exact, each.duration_us if is_keyed else None)
        for each in operator.windows
    }
    for each in operator.aggregates:
        length = each.window.duration_us
        place = int if length is None else places[each.window]
        row.append(continuous(each, mine, now, length, place) if found else each.missing)
    windows = [(each.duration_us, int if is_keyed and each.is_forever else at) for each, at in places.items()]
    last = changed(mine, now, windows, is_keyed=is_keyed)
    return [*row, instant(last) if found and last is not None else None]


def check(job: Job, changes: list[tuple[int, Change]], requested: list[tuple[int, int]], rows: pl.DataFrame) -> None:
    """Assert that state and history answer as the reference, the state where it says it knows."""
    if not requested:
        return
    online, completed = job.lookup(requested), job.completed(requested, rows)
    offline = job.operator.replay(rows, job.points(requested))
    history, magnitude = online["_at_history"].to_list(), 1e3
    for place, (key, now) in enumerate(requested):
        expected_row = expected(job.operator, changes, key, now)
        assert_rows(offline.row(place), expected_row, magnitude, f"offline {key} {now}")
        for answers, title in ((online, "online"), (completed, "completed")):
            if not answers["_at_history"][place]:
                assert_rows(answers.drop("_at_history").row(place), expected_row, magnitude, f"{title} {key} {now}")
    known = [place for place, unknown in enumerate(history) if not unknown]
    for name in offline.columns:
        a, b = online[name].gather(known).to_list(), offline[name].gather(known).to_list()
        assert_rows(a, b, magnitude, f"skew of {name}")


def batches(changes: list[Any], order: random.Random, count: int) -> list[list[Any]]:
    shuffled = list(changes)
    order.shuffle(shuffled)
    cuts = sorted(order.randrange(len(shuffled) + 1) for _ in range(count - 1))
    return [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(shuffled)], strict=True) if a < b]


@given(tiling=tilings, drawn=streams, requested=points, order=st.randoms(use_true_random=False), appends=st.booleans())
@examples(25)
def test_answers(tiling: Tiling, drawn: Any, requested: Any, order: Any, appends: bool) -> None:
    changes = inserts(drawn)
    job = Job(aggregation(*MIXED, appends=appends, tiling=tiling))
    for batch in batches(changes, order, 4):
        job.feed(frame(batch), parts=order.randrange(1, 4))
    check(job, changes, instants(changes, requested), frame(changes))


@given(tiling=tilings, drawn=streams, order=st.randoms(use_true_random=False))
@examples(40)
def test_state_is_a_function_of_the_set(tiling: Tiling, drawn: Any, order: Any) -> None:
    changes = inserts(drawn)
    states = []
    for count, combine in ((1, True), (1, False), (5, True), (9, False)):
        job = Job(aggregation(*EXACT, tiling=tiling), combine=combine)
        for batch in batches(changes, order, count):
            job.feed(frame(batch), parts=order.randrange(1, 4))
        states.append(job.table())
    assert all(state == states[0] for state in states)


@given(
    tiling=tilings,
    drawn=streams,
    order=st.randoms(use_true_random=False),
    disorder=st.integers(0, 300),
    requested=points,
)
@examples(30)
def test_watermark_forgets_only_what_it_may(
    tiling: Tiling, drawn: Any, order: Any, disorder: int, requested: Any
) -> None:
    changes = sorted(inserts(drawn), key=lambda change: change[1].time + order.randrange(disorder + 1) * SECOND)
    last = max(change.time for _, change in changes)
    touch = [(key, Change(last, last, {"x": 1, "f": None}, 1, 999)) for key in (1, 2)]
    states = []
    for size in (7, 23):
        job = Job(aggregation(*EXACT, tiling=tiling))
        seen = -(10**12)
        for start in range(0, len(changes), size):
            batch = changes[start : start + size]
            retained = [each for each in batch if each[1].time >= seen]
            assert len(retained) == len(batch) or size > 0
            job.feed(frame(batch), watermark=instant(seen))
            seen = max(seen, *(change.time - disorder * SECOND for _, change in batch))
        job.feed(frame(touch), watermark=instant(last - disorder * SECOND))
        states.append(job.table())
    assert states[0] == states[1]
    everything = [*changes, *touch]
    check(job, everything, instants(everything, requested), frame(everything))
    now = [(key, last + ahead * SECOND) for key in (1, 2) for ahead in (0, 50, 3000)]
    assert not job.lookup(now)["_at_history"].any()


@given(tiling=tilings, drawn=streams, now=st.integers(0, 3_000).map(lambda n: n * SECOND), key=st.integers(1, 2))
@examples(60)
def test_error_is_bounded_by_the_accuracy_of_the_window(tiling: Tiling, drawn: Any, now: int, key: int) -> None:
    changes = inserts(drawn)
    job = Job(aggregation(Count(window=SHORT), tiling=tiling))
    job.feed(frame(changes))
    found = job.operator.replay(frame(changes), job.points([(key, now)]))["a0"][0] or 0
    mine = [change for k, change in changes if k == key]
    grain = tiling.grain(SHORT)
    assert SHORT.duration_us is not None
    least, most = (continuous(Count(), mine, now, SHORT.duration_us + off, int) for off in (-grain, grain))
    assert grain <= SHORT.duration_us * tiling.accuracy
    assert least <= found <= most


@given(drawn=streams, requested=points)
@examples(30)
def test_exact_while_quiet(drawn: Any, requested: Any) -> None:
    changes = inserts(drawn)
    operator = aggregation(*MIXED, tiling=Tiling(exact=100, disorder="3m"))
    job = Job(operator)
    job.feed(frame(changes))
    where = instants(changes, requested)
    online = job.lookup(where)
    assert not online["_at_history"].any()
    for place, (key, now) in enumerate(where):
        mine = [change for k, change in changes if k == key]
        row = online.drop("_at_found", "_at_history", "_at_changed", strict=False).row(place)
        if is_found(mine, now):
            expected_row = [continuous(each, mine, now, each.window.duration_us) for each in operator.aggregates]  # type: ignore[union-attr]
            assert_rows(row, expected_row, 1e3, f"{key} {now}")


@given(
    tiling=tilings,
    drawn=streams,
    gone=st.sets(st.integers(0, 69)),
    requested=points,
    order=st.randoms(use_true_random=False),
)
@examples(30)
def test_corrections_are_as_if_the_rows_had_never_been(
    tiling: Tiling, drawn: Any, gone: Any, requested: Any, order: Any
) -> None:
    changes = inserts(drawn)
    back = [(key, Change(c.at, c.time, c.values, -1, c.seq)) for n, (key, c) in enumerate(changes) if n in gone]
    everything = [*changes, *back]
    job = Job(aggregation(*MIXED, appends=False, tiling=tiling))
    for batch in batches(everything, order, 4):
        job.feed(frame(batch))
    check(job, everything, instants(everything, requested), frame(everything))
    if not back:
        return
    quiet = Tiling(exact=100, disorder="3m")
    with_them, without = (Job(aggregation(*EXACT, appends=False, tiling=quiet)) for _ in range(2))
    retained = [each for n, each in enumerate(changes) if n not in gone]
    end = max(change.time for _, change in changes) + 10_000 * SECOND
    touch = [(key, Change(end, end, {"x": 1, "f": None}, 1, 999)) for key in (1, 2)]
    for job, rows in ((with_them, everything), (without, retained)):
        for batch in batches(rows, order, 3) if rows else []:
            job.feed(frame(batch))
        job.feed(frame(touch), watermark=instant(end))
    assert with_them.table() == without.table()


tables = st.builds(
    lambda some, many: [(one, *row) for one, row in some] + [(one, *row) for one, burst in many for row in burst],
    st.lists(st.tuples(st.integers(1, 4), rows), min_size=1, max_size=25),
    st.lists(st.tuples(st.integers(1, 4), bursts()), max_size=3),
)


delayed = st.lists(st.sampled_from([0, 0, 1, 50, 100, 1500, 3000]).map(SECOND.__mul__), min_size=1, max_size=4)
"""How much later than their timestamps rows take effect, also as much as a window later, and more."""


def version_history(
    drawn: list[tuple[int, int, int, tuple[Any, Any]]], delays: Sequence[int] = (0,)
) -> list[tuple[int, Change]]:
    """Return the changes of a table keyed by id: every row ends the one before it.

    Args:
        drawn: id, key, instant and values of rows.
        delays: taken in turn, how much later than its instant a row takes effect, as rows of a database do.
    """
    changes: list[tuple[int, Change]] = []
    turns = itertools.cycle(delays)
    for one in sorted({row[0] for row in drawn}):
        rows = sorted({row[2]: row for row in drawn if row[0] == one}.items())
        begins = list(itertools.accumulate((t + next(turns) for t, _ in rows), lambda last, at: max(last + 1, at)))
        for place, (t, (_, key, _, (x, f))) in enumerate(rows):
            content = {"x": x, "f": f, "id": one}
            changes.append((key, Change(begins[place], t, content, 1, 1000 * one + place)))
            if place + 1 < len(rows):
                changes.append((key, Change(begins[place + 1], t, content, -1, 1000 * one + place)))
    return changes


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@given(
    tiling=tilings,
    drawn=tables,
    requested=points,
    order=st.randoms(use_true_random=False),
    moving=st.booleans(),
    delays=delayed,
)
@examples(40)
def test_keyed_input(tiling: Tiling, drawn: Any, requested: Any, order: Any, moving: bool, delays: Any) -> None:
    changes = version_history(drawn, delays)
    job = Job(aggregation(*MIXED, keyed=True, tiling=tiling))
    if moving:
        changes.sort(key=lambda change: change[1].at)
        for start in range(0, len(changes), 9):
            batch = changes[start : start + 9]
            job.feed(frame(batch, TABLE), watermark=instant(batch[0][1].at - 1))
    else:
        for batch in batches(changes, order, 4):
            job.feed(frame(batch, TABLE))
    where = [*instants(changes, requested), *((key, c.at) for key, c in changes[:5])]
    check(job, changes, where, frame(changes, TABLE))


def upserts(drawn: list[tuple[int, int, int, tuple[Any, Any]]]) -> list[list[tuple[int, Change]]]:
    """Return the changes of a table that gets rows in the order drawn, late ones correcting what was said before."""
    steps: list[list[tuple[int, Change]]] = []
    known: dict[int, dict[int, tuple[int, Change]]] = {}
    for seq, (one, key, t, (x, f)) in enumerate(drawn):
        rows = known.setdefault(one, {})
        if t in rows:
            continue
        row = (key, Change(t, t, {"x": x, "f": f, "id": one}, 1, seq))
        before = max((other for other in rows if other < t), default=None)
        after = min((other for other in rows if other > t), default=None)
        step = [row]
        if before is not None:
            step.append(_ended(rows[before], t, -1))
        if after is not None:
            step.append(_ended(row, after, -1))
        if before is not None and after is not None:
            step.append(_ended(rows[before], after, 1))
        rows[t] = row
        steps.append(step)
    return steps


def _ended(row: tuple[int, Change], at: int, weight: int) -> tuple[int, Change]:
    key, change = row
    return key, Change(at, change.time, change.values, weight, change.seq)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@given(tiling=tilings, drawn=tables, requested=points, size=st.integers(1, 20))
@examples(30)
def test_late_updates_of_a_table(tiling: Tiling, drawn: Any, requested: Any, size: int) -> None:
    steps = upserts(drawn)
    job = Job(aggregation(*MIXED, keyed=True, tiling=tiling))
    for start in range(0, len(steps), size):
        job.feed(frame([change for step in steps[start : start + size] for change in step], TABLE))
    changes = [change for step in steps for change in step]
    where = [*instants(changes, requested), *((key, c.at) for key, c in changes[:5])]
    check(job, changes, where, frame(changes, TABLE))


def test_updates_behind_the_watermark_are_history() -> None:
    """The base of a window without beginning does not know when a row took another one's place; it says so."""
    old, new = {"x": None, "f": None, "id": 1}, {"x": 0, "f": None, "id": 1}
    changes = [
        (1, Change(SECOND, SECOND, old, 1, 0)),
        (1, Change(5 * SECOND, SECOND, old, -1, 0)),
        (1, Change(5 * SECOND, 5 * SECOND, new, 1, 1)),
        (1, Change(6 * SECOND, 5 * SECOND, new, -1, 1)),
        (1, Change(6 * SECOND, 6 * SECOND, old, 1, 2)),
    ]
    job = Job(aggregation(Max(of="x", window=FOREVER), keyed=True, tiling=TILING))
    job.feed(frame(changes, TABLE))
    job.feed(frame([(1, Change(90 * SECOND, 90 * SECOND, {**old, "id": 2}, 1, 9))], TABLE), instant(89 * SECOND))
    check(job, changes, [(1, 5 * SECOND), (1, 7 * SECOND)], frame(changes, TABLE))
    assert job.lookup([(1, 5 * SECOND), (1, 7 * SECOND)])["_at_history"].to_list() == [True, False]


def test_a_row_that_ended_after_its_window_left_it_left_it() -> None:
    """Behind the watermark what begins and ends a row is one entry; that it was there at the end of the window is still known."""
    row = {"x": None, "f": None, "id": 1}
    changes = [
        (1, Change(5 * SECOND, 5 * SECOND, row, 1, 0)),
        (1, Change(400 * SECOND, 5 * SECOND, row, -1, 0)),
        (1, Change(400 * SECOND, 400 * SECOND, row, 1, 1)),
    ]
    job = Job(aggregation(Count(window=SHORT), keyed=True, tiling=TILING))
    job.feed(frame(changes, TABLE))
    job.feed(frame([(1, Change(401 * SECOND, 401 * SECOND, {**row, "id": 2}, 1, 9))], TABLE), instant(400 * SECOND))
    changes.append((1, Change(401 * SECOND, 401 * SECOND, {**row, "id": 2}, 1, 9)))
    requested = [(1, second * SECOND) for second in (50, 105, 106, 300, 399, 400, 401, 500, 501, 502)]
    check(job, changes, requested, frame(changes, TABLE))
    assert job.lookup(requested)["_at_history"].to_list() == [True, True, *[False] * 8]


def test_a_key_that_only_corrections_had_is_not_found() -> None:
    """More instants than a tile keeps apart, all of them retracted, do not make the key exist."""
    job = Job(aggregation(Count(window=Continuous("forever")), keyed=True))
    for n in range(12):
        change = Change(n * SECOND, n * SECOND, {"id": 0}, 1, n)
        job.feed(frame([(1, change)], TABLE))
        assert job.lookup([(1, 20 * SECOND)])["_at_found"].to_list() == [True]
        job.feed(frame([(1, replace(change, weight=-1))], TABLE))
    job.feed(frame([(1, Change(30 * SECOND, 30 * SECOND, {"id": 0}, 1, 99))], TABLE))
    assert job.lookup([(1, 20 * SECOND), (1, 30 * SECOND)])["_at_found"].to_list() == [False, True]
