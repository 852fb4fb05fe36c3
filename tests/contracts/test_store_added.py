"""Tables that are written without reading them: collected rows, and groups that a function folds."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from tests.contracts.store_entries import ZERO, A
from tests.hashing import share_hashes
from umbel.state.collected import INSTANT, CollectedTable
from umbel.state.keys import encode_keys
from umbel.state.port import Reader, Stamp, Store
from umbel.state.runs.memtable import COSTLY_BLOCKS
from umbel.state.runs.points import PointRecords
from umbel.state.runs.rules import KEY, FoldRule, TableSchema
from umbel.state.tables import NUMBER, FoldedTable, State

HOUR = timedelta(hours=1)
KEYS = encode_keys(pl.DataFrame({"k": range(6)})).sort()
COLUMNS = {"slot": pl.Int64(), "n": pl.Int64()}


def _fold(rows: pl.DataFrame, horizon: int | None) -> pl.DataFrame:
    """Sum `n` by slot; slots behind the horizon become slot -1."""
    slot = pl.col("slot") if horizon is None else pl.when(pl.col("slot") < horizon).then(-1).otherwise(pl.col("slot"))
    summed = rows.with_columns(slot.alias("slot")).group_by(NUMBER, "slot").agg(pl.col("n").sum())
    return summed.sort(NUMBER, "slot").select(rows.columns)


SCHEMA = TableSchema(COLUMNS, FoldRule(_fold))


def _folded(reader: Reader) -> FoldedTable:
    return State(reader, A).folded("folded", SCHEMA)


def _collected(reader: Reader) -> CollectedTable:
    return State(reader, A).collected("collected", {"v": pl.Int64()})


def _append(table: FoldedTable, chance: random.Random, model: Counter[tuple[int, int]]) -> None:
    """Add some rows of some keys, by their slots, to a table and to the model."""
    drawn = Counter({(chance.randrange(6), chance.randrange(20)): chance.randint(1, 9) for _ in range(8)})
    model.update(drawn)
    owners = sorted({key for key, _ in drawn})
    rows = [(owners.index(key), slot, n) for (key, slot), n in sorted(drawn.items(), key=lambda each: each[0][::-1])]
    frame = pl.DataFrame(rows, {NUMBER: pl.UInt32, **COLUMNS}, orient="row")
    table.append(KEYS.gather(owners), frame)


def _by_key(model: Counter[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    return [sorted((slot, n) for (key, slot), n in model.items() if key == number) for number in range(6)]


def _must_equal(reader: Reader, model: Counter[tuple[int, int]]) -> None:
    expected = _by_key(model)
    found = _folded(reader).numbered(KEYS)
    assert [found.filter(pl.col(NUMBER) == key).select("slot", "n").rows() for key in range(6)] == expected
    for chosen in ([0, 1, 2, 3, 4, 5], [4]):
        keys = [KEYS[number] for number in chosen]
        records = PointRecords(_folded(reader).slices(keys), COLUMNS)
        rows: list[Counter[int]] = [Counter() for _ in chosen]
        for owner, slot, n in zip(records.owners.tolist(), records["slot"], records["n"], strict=True):
            rows[owner][int(slot)] += int(n)
        assert [sorted(each.items()) for each in rows] == [expected[number] for number in chosen]


@pytest.mark.parametrize("hashes", [None, 2], ids=["", "shared hashes"])
def test_folded_groups_agree_with_sums(store: Store, monkeypatch: pytest.MonkeyPatch, hashes: int | None) -> None:
    if hashes:
        share_hashes(monkeypatch, hashes)
    chance, model = random.Random(2), Counter[tuple[int, int]]()
    for batch in range(1, 15):
        with store.transaction(0, [A], Stamp(1, batch)) as tx:
            for _ in range(chance.randrange(3)):
                _append(_folded(tx), chance, model)
            _must_equal(tx, model)
        with store.snapshot(0) as reader:
            _must_equal(reader, model)


def test_a_batch_of_added_rows_that_runs_again_replaces_its_rows(store: Store) -> None:
    chance, model = random.Random(3), Counter[tuple[int, int]]()
    for batch in range(1, 8):
        for attempt in range(2):
            with store.transaction(0, [A], Stamp(1, batch)) as tx:
                _append(_folded(tx), chance, model if attempt else Counter())
                _collected(tx).append(_rows([(1, batch, attempt, 1)]))
    with store.snapshot(0) as reader:
        _must_equal(reader, model)
        assert _scanned(reader) == [(1, hour, 1, 1) for hour in range(1, 8)]


def test_a_horizon_is_used_by_merges_alone(store: Store) -> None:
    """What is stored may lose its slots; the sum of each key remains, and later slots are apart."""
    chance, model = random.Random(4), Counter[tuple[int, int]]()
    for batch in range(1, 30):
        with store.transaction(0, [A], Stamp(1, batch)) as tx:
            _append(_folded(tx), chance, model)
            _folded(tx).expire(ZERO.replace(year=1970) + timedelta(microseconds=10))
    with store.snapshot(0) as reader:
        found = _folded(reader).numbered(KEYS)
    assert found["n"].sum() == sum(model.values())
    later = found.filter(pl.col("slot") >= 10)
    assert later.select(NUMBER, "slot", "n").rows() == sorted((k, s, n) for (k, s), n in model.items() if s >= 10)


def _rows(rows: list[tuple[int, int, int, int]]) -> pl.DataFrame:
    keys, hours, values, weights = zip(*rows, strict=True)
    times = pl.Series("_time", [ZERO + hour * HOUR for hour in hours], INSTANT)
    columns = [KEYS.gather(list(keys)).alias(KEY), times, pl.Series("v", values), pl.Series("_weight", weights)]
    return pl.DataFrame(columns)


def _scanned(reader: Reader, low: int | None = None, high: int | None = None) -> list[tuple[int, int, int, int]]:
    bounds = [
        pl.Series(name, [None if each is None else ZERO + each * HOUR] * 6, INSTANT)
        for name, each in (("_low", low), ("_high", high))
    ]
    found = _collected(reader).scan(pl.DataFrame([KEYS.alias(KEY), *bounds]))
    keys = {key: number for number, key in enumerate(KEYS)}
    hours = (found["_time"] - ZERO).dt.total_hours()
    owners = [keys[key] for key in found[KEY]]
    return sorted(zip(owners, hours, found["v"], found["_weight"], strict=True))


def test_collected_rows_agree_with_a_list(store: Store) -> None:
    chance, model = random.Random(5), Counter[tuple[int, int, int]]()
    for batch in range(1, 12):
        drawn = [(chance.randrange(6), chance.randrange(12), chance.randrange(2)) for _ in range(9)]
        taken = chance.sample(sorted(each for each, n in model.items() if n > 0), min(3, len(+model)))
        rows = [(*each, 1) for each in drawn] + [(*each, -1) for each in taken]
        model.update(drawn)
        model.subtract(taken)
        with store.transaction(0, [A], Stamp(1, batch)) as tx:
            _collected(tx).append(_rows(rows))
        low, high = sorted(np.random.default_rng(batch).integers(0, 13, 2).tolist())
        with store.snapshot(0) as reader:
            expected = sorted((*each, n) for each, n in model.items() if n)
            assert _scanned(reader) == expected
            assert _scanned(reader, low, high) == [each for each in expected if low <= each[1] < high]


def test_collected_rows_up_to_the_horizon_are_gone_for_good(store: Store) -> None:
    for batch in range(1, 9):
        with store.transaction(0, [A], Stamp(1, batch)) as tx:
            _collected(tx).append(_rows([(0, hour, batch, 1) for hour in range(6)]))
            _collected(tx).expire(ZERO + 2 * HOUR if batch > 3 else ZERO)
            _collected(tx).expire(ZERO)  # a horizon never goes back
    with store.snapshot(0) as reader:
        assert {hour for _, hour, _, _ in _scanned(reader)} == {3, 4, 5}
        assert len(_scanned(reader)) == 3 * 8


@pytest.mark.parametrize(
    ("complete", "horizon", "slots"), [(True, 10, [-1, 12]), (False, 10, [3, 12]), (True, None, [3, 12])]
)
def test_only_a_merge_of_all_rows_drops_what_is_behind_the_horizon(
    complete: bool, horizon: int | None, slots: list[int]
) -> None:
    rows = pl.DataFrame({"_hash": [1, 1], KEY: [b"a", b"a"], "slot": [3, 12], "n": [1, 1], "_seq_source": [0, 0]})
    merged = SCHEMA.rule.merge(rows, np.array([True, False]), complete=complete, horizon=horizon)
    assert merged["slot"].to_list() == slots
    assert merged.columns == rows.columns


def test_a_key_of_many_small_batches_has_a_bounded_number_of_sources(store: Store) -> None:
    """A lookup reads each of them."""
    for batch in range(1, 60):
        with store.transaction(0, [A], Stamp(1, batch)) as tx:
            _append(_folded(tx), random.Random(batch), Counter())
    with store.snapshot(0) as reader:
        most = max(map(len, _folded(reader).slices(KEYS.to_list())))
    assert most <= 2 * COSTLY_BLOCKS
