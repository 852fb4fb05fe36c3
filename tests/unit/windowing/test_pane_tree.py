"""Windows of many panes: each is the merge of its panes, to the last digit whichever others are computed with it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median as median_of

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.aggregating import STREAM, Job, aggregation, frame
from tests.reference import SECOND, Change
from umbel.aggregates import Average, Count, LastK, Max, Quantile, Stddev, Sum
from umbel.aggregates.columns import Columns
from umbel.changes.runs import Flags, Ints, Sorted
from umbel.types.schema import WEIGHT
from umbel.types.windows import Continuous
from umbel.windowing import pane_tree
from umbel.windowing import partials as all_partials
from umbel.windowing.pane_tree import Ranges, Windowed, fold_by_tree, fold_ranges
from umbel.windowing.partials import Partials, fold, merged_by_point

PANES, KEYS = 40, 5
WHOLE = (
    Count(into_field="n"),
    Max(of="x", default=0, into_field="m"),
    LastK(of="s", limit=3, dedup=True, into_field="l"),
)
ROUNDED = (Sum(of="f", into_field="s"), Average(of="f", into_field="a"), Stddev(of="f", default=0.0, into_field="d"))


def panes_of(partials: Partials, seed: int, per_key: int) -> tuple[pl.DataFrame, Ints, Ints]:
    """Return the states of panes from long before 1970 on, most places of them empty; their keys and places."""
    random = np.random.default_rng(seed)
    found = [np.sort(random.choice(np.arange(-150, 150), per_key, replace=False)) for _ in range(KEYS)]
    places, ids = np.concatenate(found), np.repeat(np.arange(KEYS), per_key)
    changes = [
        (
            int(key),
            Change(
                int(at) * 10**6, int(at) * 10**6, {"x": int(at) % 7, "f": 0.1 * int(at) ** 3, "s": str(at % 4)}, 1, seq
            ),
        )
        for seq, (key, at) in enumerate(zip(ids, places, strict=True))
    ]
    rows = frame(changes).with_columns(pl.col("t").dt.epoch("us").alias("_time_first"))
    begins: Flags = np.ones(len(rows), np.bool_)
    return partials.lift(rows, begins, [pl.col(WEIGHT).sum()]), ids, places


def windows_of(count: int, seed: int) -> Windowed:
    random = np.random.default_rng(seed)
    first = random.integers(-200, 200, count)
    return Windowed(random.integers(0, KEYS + 1, count), first, first + PANES)


@pytest.mark.parametrize("per_key", [0, 1, 30, 300])
def test_a_window_is_the_merge_of_its_panes(per_key: int) -> None:
    partials = Partials.of(WHOLE, STREAM, is_retractable=False)
    states, ids, places = panes_of(partials, 1, per_key)
    windows = windows_of(500, 2)
    search = Sorted(ids, places)
    bounds = [search.first_at_or_after(windows.ids, each) for each in (windows.first, windows.last)]
    expected = fold(states, *bounds, partials)
    found = fold_by_tree(states, ids, places, windows, partials, PANES)
    assert_frame_equal(found, expected)
    assert per_key < 300 or found[WEIGHT].max() == PANES


def test_floats_do_not_depend_on_other_windows_and_panes() -> None:
    partials = Partials.of(ROUNDED, STREAM, is_retractable=False)
    states, ids, places = panes_of(partials, 3, 200)
    windows = windows_of(300, 4)
    together = fold_by_tree(states, ids, places, windows, partials, PANES)
    for number in range(0, 300, 7):
        alone = windows.only(np.array([number]))
        mine = (ids == alone.ids) & (places >= alone.first) & (places < alone.last)
        found = fold_by_tree(states.filter(mine), ids[mine], places[mine], alone, partials, PANES)
        assert_frame_equal(found, together[number : number + 1], check_exact=True)


def test_panes_are_not_merged_for_each_window(monkeypatch: pytest.MonkeyPatch) -> None:
    merged = list[int]()

    def counted(states: pl.DataFrame, points: Ints, rows: Ints, partials: Partials) -> pl.DataFrame:
        merged.append(len(rows))
        return merged_by_point(states, points, rows, partials)

    monkeypatch.setattr(all_partials, "merged_by_point", counted)
    partials = Partials.of(WHOLE, STREAM, is_retractable=False)
    states, ids, places = panes_of(partials, 5, 300)
    fold_by_tree(states, ids, places, windows_of(1000, 6), partials, PANES)
    assert sum(merged) < 1000 * 2 * np.log2(PANES) < 1000 * PANES / 3


def test_windows_at_each_row_are_merged_from_common_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a Continuous window are emitted where each row enters and leaves, of all rows in between."""
    merged = list[int]()

    def counted(states: pl.DataFrame, points: Ints, rows: Ints, partials: Partials) -> pl.DataFrame:
        merged.append(len(rows))
        return merged_by_point(states, points, rows, partials)

    monkeypatch.setattr(all_partials, "merged_by_point", counted)
    rows, spread = 1000, 60 * SECOND
    job = Job(aggregation(Sum(of="x", window=Continuous("2h"), into_field="n"), emit="final"))
    job.feed(frame([(1, Change(at, at, {"x": 1}, 1, at)) for at in range(0, rows * spread, spread)]))
    found = job.changes().filter(pl.col(WEIGHT) > 0).sort("t")
    entered = found.filter(pl.col("t").dt.second() == 0)
    assert entered["n"].to_list() == [min(number + 1, 121) for number in range(rows)]
    assert sum(merged) < len(found) * 2 * np.log2(120)


def by_tree(states: pl.DataFrame, ids: Ints, places: Ints, windows: Windowed, partials: Partials) -> pl.DataFrame:
    return fold_by_tree(states, ids, places, windows, partials, PANES)


def in_turn(states: pl.DataFrame, ids: Ints, places: Ints, windows: Windowed, partials: Partials) -> pl.DataFrame:
    return fold(states, *ranges_of(ids, places, windows), partials)


def by_ranges(states: pl.DataFrame, ids: Ints, places: Ints, windows: Windowed, partials: Partials) -> pl.DataFrame:
    low, high = ranges_of(ids, places, windows)
    ranges = Ranges(np.arange(len(low)), windows.ids, low, high, high)
    return fold_ranges(states, ids, ranges, partials, lambda _, entries: entries >= 0)


def ranges_of(ids: Ints, places: Ints, windows: Windowed) -> tuple[Ints, Ints]:
    search = Sorted(ids, places)
    low, high = (search.first_at_or_after(windows.ids, each) for each in (windows.first, windows.last))
    return low, np.maximum(low, high)


@pytest.mark.parametrize("folding", [by_tree, in_turn, by_ranges])
def test_no_portion_has_more_items_than_are_merged_at_once(
    folding: Callable[..., pl.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    items, tidy = list[int](), Quantile.tidy

    def counted(self: Quantile, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        items.append(states[state.name("values")].list.len().sum())
        return tidy(self, states, state)

    median = Quantile(of="f", p=0.5, approx=True, into_field="q")
    partials = Partials.of([median], STREAM, is_retractable=False)
    states, ids, places = panes_of(partials, 7, 250)
    windows = windows_of(200, 8)
    windows = windows.only(np.argsort(windows.ids, kind="stable"))
    expected = folding(states, ids, places, windows, partials)
    monkeypatch.setattr(Quantile, "tidy", counted)
    monkeypatch.setattr(all_partials, "PAIRS", 500)
    assert_frame_equal(folding(states, ids, places, windows, partials), expected, check_exact=True)
    assert 100 < median_of(items[-8:]) <= max(items[-8:]) <= 500


def test_many_windows_are_merged_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    partials = Partials.of((*WHOLE, *ROUNDED), STREAM, is_retractable=False)
    states, ids, places = panes_of(partials, 7, 250)
    at_once = fold_by_tree(states, ids, places, windows_of(200, 8), partials, PANES)
    monkeypatch.setattr(pane_tree, "PAIRS", 100)
    in_portions = fold_by_tree(states, ids, places, windows_of(200, 8), partials, PANES)
    assert_frame_equal(in_portions, at_once, check_exact=True)
