"""Lookups of many keys at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from tests.aggregating import INSTANT, Job, aggregation, frame, instant
from tests.reference import Change
from umbel.aggregates import Count, ExpDecaySum, Quantile, Sum
from umbel.graph.graph import Graph, GraphNode
from umbel.query.lookups import POINT_LOOKUP_ROWS, POINTS_AT_ONCE, Lookups
from umbel.types.windows import SECOND, Continuous, Tumbling
from umbel.windowing import tile_folds
from umbel.windowing.partials import Partials
from umbel.windowing.tile_points import Pointwise
from umbel.windowing.tiles import Moments


def lookups(job: Job) -> Lookups:
    """Return lookups on the state of an operator, as dataset E."""
    graph = cast(Graph, SimpleNamespace(outputs={"E": GraphNode(job.operator, (), job.operator.id, 0, 0)}))
    return Lookups(graph, job.store, lambda _, __: frame([]))


def recorded_portions(job: Job, monkeypatch: pytest.MonkeyPatch) -> list[pl.DataFrame]:
    """Return a list that the points of each read of state are added to."""
    portions, stored_answer = list[pl.DataFrame](), type(job.operator).stored_answer

    def recorded(operator: Any, state: Any, points: pl.DataFrame) -> Any:
        portions.append(points)
        return stored_answer(operator, state, points)

    monkeypatch.setattr(type(job.operator), "stored_answer", recorded)
    return portions


@pytest.mark.parametrize("window", [Continuous("1h"), Tumbling("100s")])
def test_instants_of_changes_are_computed_if_the_timestamp_is_requested(
    window: Continuous | Tumbling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They took half of the time of a training set."""
    decaying = ExpDecaySum(of="f", half_life="1h", window=window)  # so that discrete windows are looked up
    job = Job(aggregation(Count(window=window), Sum(of="x", window=window), decaying))
    job.feed(
        frame([(1, Change(at, at, {"x": at, "f": 1.0}, seq=at)) for at in (300 * SECOND, 400 * SECOND, 900 * SECOND)])
    )
    keys, at = pl.DataFrame({"k": [1] * POINTS_AT_ONCE}), pl.Series([instant(1000 * SECOND)], dtype=INSTANT)
    points, timestamp = (keys, at.new_from_index(0, keys.height)), job.operator.schema.timestamp
    rows, _ = lookups(job).online("E", *points)
    dated, _ = lookups(job).online("E", *points, frozenset({"a1", timestamp}))
    assert dated.select(timestamp, "a1").equals(rows.select(timestamp, "a1"))
    assert dated[timestamp].null_count() == 0
    monkeypatch.delattr(Moments, "before")
    undated, _ = lookups(job).online("E", *points, frozenset({"a0", "a1"}))
    assert undated.equals(rows.drop(timestamp, "a2"))


def test_a_lookup_of_many_keys_reads_them_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored for all keys was in memory at once, several times."""
    count = 2 * POINTS_AT_ONCE + 100
    job = Job(aggregation(Count(window=Continuous("forever")), Sum(of="x", window=Continuous("forever"))))
    job.feed(frame([(key, Change(1000, 1000, {"x": key}, seq=key)) for key in range(count)]))
    portions = recorded_portions(job, monkeypatch)
    keys = pl.DataFrame({"k": [*reversed(range(count + 5))]})
    at = pl.Series([instant(2000)], dtype=INSTANT).new_from_index(0, keys.height)
    rows, found = lookups(job).online("E", keys, at)
    assert rows["a1"].to_list() == [None] * 5 + [*reversed(range(count))]
    assert rows["a0"].to_list() == [None] * 5 + [1] * count
    assert found.sum() == count
    sizes = [portion.height for portion in portions]
    assert sum(sizes) == keys.height
    assert max(sizes) <= POINTS_AT_ONCE


def test_what_is_stored_for_a_key_is_read_once_for_many_instants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a training set come in any order: each portion of them read nearly all keys."""
    count, distinct = 3 * POINTS_AT_ONCE, 7
    job = Job(aggregation(Count(window=Continuous("forever")), Sum(of="x", window=Continuous("forever"))))
    job.feed(frame([(key, Change(key, key, {"x": key}, seq=key)) for key in range(distinct)]))
    portions = recorded_portions(job, monkeypatch)
    keys = pl.DataFrame({"k": pl.int_range(count, eager=True) * 3 % distinct})
    at = pl.Series([instant(2000)], dtype=INSTANT).new_from_index(0, count)
    rows, found = lookups(job).online("E", keys, at)
    assert rows["a1"].equals(keys["k"], check_names=False, check_dtypes=False)
    assert found.all()
    assert sum(portion["_key"].n_unique() for portion in portions) < distinct + len(portions)


@pytest.mark.parametrize("count", [POINT_LOOKUP_ROWS, POINT_LOOKUP_ROWS + 1])
def test_equal_points_are_answered_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a ranking have the user in common: what is stored for one was merged for each of them."""
    job = Job(aggregation(Count(window=Continuous("1h")), Sum(of="x", window=Continuous("1h"))))
    job.feed(frame([(key, Change(at, at, {"x": at}, seq=at)) for key in (1, 2) for at in (1000, 2000, 3000)]))
    keys = pl.DataFrame({"k": [1 + number % 3 for number in range(count)]})
    at = pl.Series([instant(1000 * (number % 4)) for number in range(count)], dtype=INSTANT)
    expected = [lookups(job).online("E", keys[number], at[number : number + 1]) for number in range(12)]
    portions, read, pairs = recorded_portions(job, monkeypatch), Pointwise.read, list[int]()

    def recorded(pointwise: Pointwise, state: Any, stored: Any) -> Any:
        pairs.append(len(stored))
        return read(pointwise, state, stored)

    monkeypatch.setattr(Pointwise, "read", recorded)
    rows, found = lookups(job).online("E", keys, at)
    for number in range(count):
        row, is_there = expected[number % 12]
        assert rows[number].equals(row, null_equal=True)
        assert found[number] == is_there.item()
    assert sum(pairs) + sum(portion.height for portion in portions) == 12


def test_equal_keys_without_a_value_are_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(aggregation(Count(window=Continuous("1h"))))
    job.feed(frame([(1, Change(1000, 1000, {"x": 1}, seq=1))]))
    keys = pl.DataFrame({"k": [None, 1, None] * POINT_LOOKUP_ROWS}, schema={"k": pl.Int64})
    at = pl.Series([instant(2000)], dtype=INSTANT).new_from_index(0, keys.height)
    rows, found = lookups(job).online("E", keys, at)
    assert found.to_list() == [False, True, False] * POINT_LOOKUP_ROWS
    assert rows["k"].to_list() == keys["k"].to_list()


def test_states_of_many_instants_are_not_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 questions for the last values of a key with 50,000 rows took 20 GB."""
    window = Continuous("1h")
    job = Job(aggregation(Quantile(of="f", p=0.5, approx=True, window=window), Count(window=window)))
    job.feed(frame([(1, Change(at, at, {"f": float(at)}, seq=at)) for at in range(0, 3600 * SECOND, 10 * SECOND)]))
    keys = pl.DataFrame({"k": [1] * 600})
    at = pl.Series([instant(number * 6 * SECOND) for number in range(600)], dtype=INSTANT)
    expected, there = lookups(job).online("E", keys, at)
    items, results = list[int](), Partials.results

    def recorded(partials: Partials, states: pl.DataFrame, *others: Any) -> list[pl.Series]:
        lists = [name for name, dtype in states.schema.items() if isinstance(dtype, pl.List)]
        items.append(states.select(pl.sum_horizontal(pl.col(name).list.len().sum() for name in lists)).item())
        return results(partials, states, *others)

    monkeypatch.setattr(Partials, "results", recorded)
    monkeypatch.setattr(tile_folds, "ITEMS", 5000)
    rows, found = lookups(job).online("E", keys, at)
    assert rows.equals(expected)
    assert found.equals(there)
    assert len(items) > 10
    assert max(items) <= 5000
