"""Points of busy keys are answered by a tree over the entries of these: the same values, without reading every entry for each."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.aggregating import STREAM, Job, aggregation, frame
from tests.reference import Change
from umbel.aggregates import Count, LastK, Max, Quantile, Sum
from umbel.aggregates.columns import Columns
from umbel.types.schema import WEIGHT
from umbel.types.windows import SECOND, Continuous
from umbel.windowing import tile_folds
from umbel.windowing.partials import Partials
from umbel.windowing.points import Points
from umbel.windowing.tile_folds import Placed, folded
from umbel.windowing.tiling import Tiling

WHOLE = (
    Count(into_field="n"),
    Sum(of="x", into_field="t"),
    Max(of="x", default=0, into_field="m"),
    LastK(of="s", limit=3, dedup=True, into_field="l"),
)
KEYS, GRAIN = 4, 20 * SECOND
COUNTS = np.array([300, 0, 3, 80])


def placed(partials: Partials, seed: int, delay: int) -> Placed:
    """Return entries whose changes take effect up to `delay` seconds after their position."""
    random = np.random.default_rng(seed)
    ids = np.repeat(np.arange(KEYS), COUNTS)
    position = np.concatenate([np.sort(random.integers(-500, 500, count)) * SECOND for count in COUNTS])
    since = position - random.integers(0, 5, len(ids)) * SECOND
    until = position + random.integers(0, delay + 1, len(ids)) * SECOND
    changes = [
        (int(key), Change(int(at), int(at), {"x": seq % 7, "f": 0.5, "s": str(seq % 5)}, 1, seq))
        for seq, (key, at) in enumerate(zip(ids, position, strict=True))
    ]
    rows = frame(changes).with_columns(pl.col("t").dt.epoch("us").alias("_time_first"))
    states = partials.lift(rows, np.ones(len(rows), np.bool_), [pl.col(WEIGHT).sum()])
    return Placed(states, ids, position, since, until, GRAIN)


@pytest.mark.parametrize("window", [Continuous("100s"), Continuous("forever")])
@pytest.mark.parametrize("delay", [0, 10, 2000])
def test_a_tree_counts_the_entries_that_each_point_counts(
    window: Continuous, delay: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    partials = Partials.of(WHOLE, STREAM, is_retractable=False)
    entries = placed(partials, delay, delay)
    if window.duration_us is None:
        entries = replace(entries, position=np.zeros(len(entries.ids), np.int64))
    random = np.random.default_rng(9)
    points = Points(random.integers(0, KEYS + 1, 500), random.integers(-600, 1200, 500) * SECOND)
    expected, cut = folded(entries, points, window, partials)
    monkeypatch.setattr(tile_folds, "MANY", 0)
    for shared, least in pairwise((0, 0, 4, 8)):
        monkeypatch.setattr(tile_folds, "SHARED", shared)
        monkeypatch.setattr(tile_folds, "LEAST", least)
        found, are_cut = folded(entries, points, window, partials)
        assert_frame_equal(found, expected)
        assert are_cut.tolist() == cut.tolist()
    assert cut.any()


def test_many_points_of_a_busy_key_do_not_merge_all_entries_each(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 1500
    changes = [(1, Change(at * SECOND, at * SECOND, {"x": at, "f": 0.5}, 1, at)) for at in range(count)]
    windows = (Continuous("1d"), Continuous("forever"))
    job = Job(aggregation(*(Sum(of="x", window=each) for each in windows), tiling=Tiling(exact=2**31 - 1)))
    job.feed(frame(changes))
    merged = list[int]()
    merge = Partials.merge
    monkeypatch.setattr(Partials, "merge", lambda *a: merged.append(len(a[1])) or merge(*a))
    found = job.lookup([(1, at * SECOND) for at in range(count)])
    assert found["a0"].to_list() == found["a1"].to_list() == [at * (at + 1) // 2 for at in range(count)]
    assert sum(merged) < 2 * count * 30


def test_items_of_entries_are_not_merged_for_each_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries were counted, not what they have: 1,000 questions for a quantile of 13,000 values took 10 ms each."""
    count, values, points = 60, 50, 1000
    changes = [(1, Change(at, at, {"x": 0, "f": float(at % values)}, 1, at)) for at in range(count * values)]
    rows = frame(changes).with_columns(pl.col("t").dt.epoch("us").alias("_time_first"))
    partials = Partials.of([Quantile(of="f", p=0.5, approx=True, into_field="q")], STREAM, is_retractable=False)
    states = partials.lift(rows, np.arange(len(rows)) % values == 0, [pl.col(WEIGHT).sum()])
    at = np.arange(count) * SECOND
    entries = Placed(states, np.zeros(count, np.int64), at, at, at, GRAIN)
    points_at = Points(np.zeros(points, np.int64), np.linspace(count // 2, count, points).astype(np.int64) * SECOND)
    items, tidy = list[int](), Quantile.tidy

    def counted(quantile: Quantile, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        items.append(states[state.name("values")].list.len().sum())
        return tidy(quantile, states, state)

    monkeypatch.setattr(Quantile, "tidy", counted)
    found, _ = folded(entries, points_at, Continuous("1d"), partials)
    by_tree = sum(items)
    monkeypatch.setattr(tile_folds, "MANY", 1 << 40)
    expected, _ = folded(entries, points_at, Continuous("1d"), partials)
    assert_frame_equal(found, expected)
    assert by_tree < (sum(items) - by_tree) / 3
