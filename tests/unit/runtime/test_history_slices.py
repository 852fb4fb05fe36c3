"""How history is cut into what the steps of a backfill read."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel.runtime import history_slices
from umbel.runtime.backfill_state import BEFORE_HISTORY, LONGEST_WAIT, BackfillState
from umbel.runtime.history_slices import HistoryPosition, HistorySizes, HistorySlice, bounds_of
from umbel.spark.backfill_step import shares
from umbel.types.dtypes import Int, Str
from umbel.types.schema import Schema

START = HistoryPosition(BEFORE_HISTORY)
sizes = st.dictionaries(st.integers(-5, 50), st.integers(1, 2_500_000), min_size=1)


def parts_of(piece: HistorySlice, known: dict[int, int], part_rows: int) -> list[tuple[int, int]]:
    """Return the parts of batches in a slice."""
    found = []
    for batch in sorted(batch for batch in known if piece.first <= batch <= piece.last):
        count = HistorySizes(known, part_rows).parts(batch)
        begin, end = (0, count) if piece.is_whole else (piece.begin, piece.end)
        assert piece.is_whole or (count == piece.parts and piece.first == piece.last)
        found += [(batch, part) for part in range(begin, end)]
    return found


@given(sizes, st.lists(st.integers(1, 5_000_000), min_size=1), st.sampled_from([100_000, 33_333, 1_000_000]))
def test_steps_of_any_size_read_every_part_once_in_order(known, steps, size):
    history, position, read, rows = HistorySizes(known, size), START, [], 0
    for number in range(100_000):
        end = history.after(position, steps[number % len(steps)])
        if end == position:
            break
        for each in history.slices(position, end):
            assert each.rows < history_slices.SLICE_ROWS * 2
            read += parts_of(each, known, size)
        rows += history.left(position) - history.left(end)
        assert end > position
        position = end
    assert read == [(batch, part) for batch in sorted(known) for part in range(history.parts(batch))]
    assert position == HistoryPosition(max(known))
    assert (rows, history.left(position)) == (sum(known.values()), 0)


@given(sizes, st.integers(1, 3_000_000), st.integers(1, 3_000_000))
def test_a_batch_that_arrives_meanwhile_changes_no_slice_before_it(known, first, second):
    history, grown = HistorySizes(known), HistorySizes({**known, max(known) + 1: 700_000})
    position = history.after(START, first)
    end = history.after(position, second)
    assert list(grown.slices(position, end)) == list(history.slices(position, end))


def test_a_step_has_about_as_many_rows_as_requested():
    known = {3: 100_000, 4: 10_000_000}
    assert HistorySizes(known).after(START, 100_000) == HistoryPosition(3)
    assert HistorySizes(known).after(START, 200_001) == HistoryPosition(3, 2)
    assert HistorySizes(known).after(HistoryPosition(3, 90), 1_000_000) == HistoryPosition(4)
    assert [each.rows for each in HistorySizes(known).slices(START, HistoryPosition(4))] == [100_000, *[2_000_000] * 5]
    assert [each.rows for each in HistorySizes(known).slices(START, HistoryPosition(4), 1_000_000)] == [
        100_000,
        *[1_000_000] * 10,
    ]


def test_steps_end_with_a_batch_where_that_is_near():
    known = {1: 900_000, 2: 900_000, 3: 900_000}
    assert HistorySizes(known).after(START, 2_000_000) == HistoryPosition(2)
    assert HistorySizes(known).after(START, 1_800_001) == HistoryPosition(2)
    assert HistorySizes(known).after(START, 1_700_000) == HistoryPosition(1)
    assert HistorySizes(known).after(START, 500_000) == HistoryPosition(BEFORE_HISTORY, 5)
    assert HistorySizes({1: 100, 2: 900_000}).after(START, 300) == HistoryPosition(
        1, 1
    )  # the first batch is too small a step


def test_a_large_batch_is_cut_evenly():
    whole = {7: 2_100_000}
    assert [each.rows for each in HistorySizes(whole).slices(START, HistoryPosition(7))] == [1_000_000, 1_100_000]
    smallest = [(each.begin, each.end) for each in HistorySizes({7: 250_000}).slices(START, HistoryPosition(7), 1)]
    assert smallest == [(0, 1), (1, 2), (2, 3)]  # no slice is smaller than a part


def test_tasks_get_slices_of_about_the_same_size():
    todo = [
        (node, HistorySlice(batch, batch, rows=rows)) for batch, (node, rows) in enumerate([(1, 5), (2, 9), (1, 4)])
    ]
    assert shares(todo, 2) == [[todo[1]], [todo[0], todo[2]]]
    assert shares(todo[:1], 8) == [[todo[0]]]
    empty = [(1, HistorySlice(batch, batch)) for batch in range(4)]
    assert [len(share) for share in shares(empty, 2)] == [2, 2]


def test_history_of_nothing_has_no_slices():
    assert (
        HistorySizes({}).after(START, 5),
        list(HistorySizes({}).slices(START, START)),
        HistorySizes({}).left(START),
    ) == (START, [], 0)


EVEN, ALIKE, SPARSE = 1_000_000_007, 0, 300_000_000


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("step", [EVEN, -EVEN, ALIKE, SPARSE])
def test_parts_have_every_row_once_and_all_changes_of_a_row(keyed, step):
    schema = Schema((("k", Str()),) if keyed else (), (("v", Int()),), "at")
    instants = [step * (number % 211) + number % 3 * (step != ALIKE) for number in range(1_000)]
    rows = pl.DataFrame({"k": [f"key-{number % 97}" for number in range(1_000)], "v": range(1_000)})
    rows = rows.with_columns(at=pl.Series(instants).cast(pl.Datetime("us", "UTC")))
    bounds = bounds_of(rows["at"], 5)
    assert bounds == bounds_of(rows["at"].sort(descending=True), 5) == sorted(bounds)
    found = [HistorySlice(4, 4, part, part + 1, 5).cut(rows, schema, bounds) for part in range(5)]
    assert sorted(pl.concat(found)["v"]) == list(range(1_000))
    of = [set(part["k" if keyed else "at"]) for part in found]
    assert sum(map(len, of)) == len(set().union(*of))
    if keyed or step != ALIKE:
        assert min(part.height for part in found) > 50
        joined = HistorySlice(4, 4, 1, 3, 5).cut(rows, schema, bounds)
        assert sorted(joined["v"]) == sorted(pl.concat(found[1:3])["v"])
    else:
        assert max(part.height for part in found) == 1_000


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=300),
    st.lists(st.integers(0, 299), max_size=3),
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60) | st.none()), min_size=1, max_size=9),
    st.sampled_from([20, 37, 300]),
    st.booleans(),
)
def test_parts_that_are_divided_while_a_batch_is_read_have_every_row_once(rows, cuts, steps, size, keyed):
    """As where steps end the worker in between, and what is left is read in smaller ones."""
    schema = Schema((("k", Int()),) if keyed else (), (("v", Int()),), "at")
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    frames = {}
    for number, (begin, end) in enumerate(pairwise(edges)):
        at, keys = zip(*rows[begin:end], strict=True)
        frames[number] = pl.DataFrame({"k": keys, "v": range(begin, end), "at": at}).with_columns(
            pl.col("at").cast(pl.Datetime("us", "UTC"))
        )
    history, state = {number: frame.height for number, frame in frames.items()}, BackfillState(part_rows=size)
    read = []
    for number in range(2_000):
        step, divided = steps[number % len(steps)]
        if divided is not None and number < 2 * len(steps):
            state = state.divided(history, divided, divided)
        sizes = state.sizes(history)
        end = sizes.after(state.position, step)
        if end == state.position:
            break
        for each in sizes.slices(state.position, end):
            found = pl.concat(frames[batch] for batch in range(each.first, each.last + 1))
            read += each.cut(found, schema, bounds_of(found["at"], each.parts, each.divisor))["v"].to_list()
        state = state.begun(end, 0, in_driver=True).completed(0, {}, {}, 0.0, 0)
    assert sorted(read) == list(range(len(rows)))


def test_a_part_is_divided_into_as_small_ones_as_a_step_may_read():
    known = {3: 250_000, 4: 20, 5: 1}
    before = HistorySizes(known)
    fine = before.divided(1_000)
    assert [(before.parts(each), fine.parts(each)) for each in known] == [(3, 3 * 512), (1, 8), (1, 1)]
    position = HistoryPosition(BEFORE_HISTORY, 2)
    assert fine.at(position, before) == HistoryPosition(BEFORE_HISTORY, 2 * 512)
    assert fine.at(HistoryPosition(3), before) == HistoryPosition(3)
    assert abs(fine.left(fine.at(position, before)) - before.left(position)) < 2
    end = fine.after(fine.at(position, before), 1_000)
    assert 900 < fine.left(fine.at(position, before)) - fine.left(end) < 1_200
    assert fine.divided(1_000) == fine


def test_seven_timestamps_divide_a_batch():
    """A sample of them would not tell which ones there are."""
    rows = pl.Series([value for value in range(7) for _ in range(100)]).cast(pl.Datetime("us", "UTC"))
    assert bounds_of(rows, 7) == [1, 2, 3, 4, 5, 6]


def test_a_step_that_was_begun_is_found_again():
    state = BackfillState(("a",)).begun(HistoryPosition(BEFORE_HISTORY, 3), 900, in_driver=True)
    again = BackfillState.of(state.plain)
    assert (again.position, again.end, again.in_driver) == (START, HistoryPosition(BEFORE_HISTORY, 3), True)
    done = BackfillState.of(again.completed(600, {"a": "2024"}, {"b": [7, 1, 2]}, 1.5, 900).plain)
    assert (done.position, done.end) == (HistoryPosition(BEFORE_HISTORY, 3), START)
    assert (done.step, done.done, done.total, dict(done.seen), done.seconds) == (1, 600, 900, {"a": "2024"}, 1.5)
    assert dict(done.moved) == {"b": [7, 1, 2]}


def test_parts_that_an_older_version_has_read_are_no_parts_of_this_one():
    begun = BackfillState(("a",)).begun(HistoryPosition(3, 2), 900, in_driver=False).plain
    assert not BackfillState.of(begun).is_cut_otherwise
    old = {name: value for name, value in begun.items() if name != "cut"}
    assert BackfillState.of(old).is_cut_otherwise
    assert not BackfillState.of({**old, "planned_part": 0}).is_cut_otherwise
    begun_now = BackfillState.of({**old, "planned_part": 0}).begun(HistoryPosition(3, 2), 900, in_driver=False)
    assert not BackfillState.of(begun_now.plain).is_cut_otherwise


def test_a_step_is_counted_that_has_ended_its_worker() -> None:
    begun = BackfillState(("a",)).begun(HistoryPosition(3), 900, in_driver=False)
    first = BackfillState.of(begun.tried(7, None).plain)
    assert (first.ended, first.tried(7, None).ended) == (0, 0)
    assert first.tried(8, None).ended == 1
    assert first.tried(8, 6).ended == 1
    assert first.tried(8, 7).ended == 0, "it was stopped, or failed with an error"
    assert first.tried(8, None).tried(9, None).ended == 2
    failed = first.failed("Transient", 5.0, has_ended=False)
    assert (failed.ended, failed.failures, failed.not_before, failed.error) == (0, 1, 6.0, "Transient")
    assert failed.tried(8, None).ended == 0
    assert first.failed("MemoryError", 5.0, has_ended=True).tried(7, None).ended == 1
    done = first.tried(8, None).completed(5, {}, {}, 1.0, 10, 20)
    assert (done.ended, done.epoch, done.limit, done.most) == (0, None, 10, 20)


def test_a_step_that_failed_does_not_wait_for_a_clock_that_was_set_back() -> None:
    state = BackfillState(("a",), failures=1, not_before=1_000_000.0)
    assert not state.is_due(1_000_000.0 - LONGEST_WAIT)
    assert state.is_due(1_000_000.0)
    assert state.is_due(1_000_000.0 - 2 * LONGEST_WAIT)
