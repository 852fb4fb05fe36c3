"""Shards: transactions whole or not at all, batches that run again, epochs, readers, and what maintenance leaves alone."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from tests.unit.state.runs.tables import (
    COLLECTED,
    REPLACED,
    SCHEMAS,
    SMALL,
    SUMMED,
    TABLES,
    TIME,
    ZERO,
    A,
    B,
    found,
    frame,
    keys_of,
    opened,
    scanned,
    write,
)
from umbel.errors import Damaged, InvalidValue, Transient
from umbel.state import disk
from umbel.state.port import Fenced, StaleBatch, Stamp
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.memtable import state_id_of
from umbel.state.runs.records import JournalRecord
from umbel.state.runs.rules import ReplaceRule, TableSchema
from umbel.state.runs.shard import Shard, ShardOptions


def test_each_rule_merges_what_batches_write(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    for batch in range(3):
        with shard.transaction([A, B], Stamp(1, batch)) as tx:
            write(tx, REPLACED, [(1, 0, f"v{batch}"), (1, 0, "second"), (2, batch, "w")], [(2, batch - 1)])
            write(tx, SUMMED, [(1, 0, 10 + batch), (2, batch, 1)])
            write(tx, COLLECTED, [(1, 0, "x"), (1, 0, f"{batch}")], [(1, 0)] if batch == 2 else [])
    expected = {
        REPLACED: [(1, 0, "v2"), (1, 0, "second"), (2, 2, "w")],
        SUMMED: [(1, 0, 33, 12), (2, 0, 1, 1), (2, 1, 1, 1), (2, 2, 1, 1)],
        COLLECTED: [(1, 0, "0", 1), (1, 0, "1", 1), (1, 0, "2", 1), (1, 0, "x", 2)],
    }
    for _ in range(2):
        snapshot = shard.snapshot()
        assert {table: found(snapshot, table) for table in TABLES} == expected
        assert {table: scanned(snapshot, table) for table in TABLES} == expected
        assert {table: found(opened(tmp_path).snapshot(), table) for table in TABLES} == expected
        maintain(shard)


def test_a_batch_that_runs_again_replaces_its_record(tmp_path: Path) -> None:
    shard = opened(tmp_path)

    def add(stamp: Stamp, value: int, state_ids: tuple[str, ...] = (A,)) -> list[tuple[object, ...]]:
        with shard.transaction(state_ids, stamp) as tx:
            before = found(tx, SUMMED)
            write(tx, SUMMED, [(1, 0, value)])
        return before

    add(Stamp(1, 0), 1)
    add(Stamp(1, 1), 2)
    add(Stamp(1, 1, 1), 4)
    maintain(shard)  # flushes batch 0 alone
    assert found(shard.snapshot(), SUMMED) == [(1, 0, 7, 4)]
    assert add(Stamp(1, 1, 1), 8) == [(1, 0, 3, 2)]
    assert found(shard.snapshot(), SUMMED) == [(1, 0, 11, 8)]
    assert add(Stamp(2, 1), 16) == [(1, 0, 1, 1)]
    assert found(shard.snapshot(), SUMMED) == found(opened(tmp_path).snapshot(), SUMMED) == [(1, 0, 17, 16)]
    with pytest.raises(Fenced, match="epoch 2"):
        add(Stamp(1, 1), 1)
    with pytest.raises(StaleBatch, match="batch 0 came before it"):
        add(Stamp(2, 0), 1)
    assert (shard.stamp(A), shard.stamp(B)) == (Stamp(2, 1), None)


def test_state_ids_are_replaced_apart(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    with shard.transaction([A, B], Stamp(1, 5)) as tx:
        write(tx, SUMMED, [(1, 0, 1)])
        write(tx, COLLECTED, [(1, 0, "x")])
    with shard.transaction([B], Stamp(1, 6)) as tx:
        write(tx, COLLECTED, [(1, 0, "y")])
    maintain(shard)
    with shard.transaction([A], Stamp(1, 5)) as tx:
        assert found(tx, SUMMED) == []
    for each in (shard, opened(tmp_path)):
        assert found(each.snapshot(), SUMMED) == []
        assert found(each.snapshot(), COLLECTED) == [(1, 0, "x", 1), (1, 0, "y", 1)]


def test_batches_of_backfills_have_negative_numbers(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    for batch in (-3, -2):
        with shard.transaction([A], Stamp(1, batch), undo=False) as tx:
            write(tx, SUMMED, [(1, 0, 1)])
    with pytest.raises(StaleBatch, match="written without undo"), shard.transaction([A], Stamp(1, -2)):
        pass
    with shard.transaction([A], Stamp(1, 0)) as tx:
        write(tx, SUMMED, [(1, 0, 1)])
    assert found(shard.snapshot(), SUMMED) == found(opened(tmp_path).snapshot(), SUMMED) == [(1, 0, 3, 1)]


def test_a_batch_without_undo_is_final(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    for step in range(3):
        with shard.transaction([A], Stamp(1, 0, step), undo=False) as tx:
            write(tx, SUMMED, [(1, 0, 1)])
    maintain(shard)
    assert not shard.refresh().manifest.live
    for each in (shard, opened(tmp_path)):
        assert found(each.snapshot(), SUMMED) == [(1, 0, 3, 1)]
        with pytest.raises(StaleBatch, match="without undo"), each.transaction([A], Stamp(1, 0, 2)):
            pass


def test_a_block_that_raises_writes_nothing(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    with suppress(KeyError), shard.transaction([A], Stamp(1, 0)) as tx:
        write(tx, SUMMED, [(1, 0, 1)])
        raise KeyError
    assert found(shard.snapshot(), SUMMED) == []
    assert shard.stamp(A) is None
    first, second = shard.transaction([A], Stamp(1, 0)), shard.transaction([A], Stamp(1, 0))
    with first, pytest.raises(InvalidValue, match="open on the shard"):
        second.__enter__()


def test_reads_are_limited_to_ranges_of_the_order(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    for batch in range(6):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, REPLACED, [(key, batch, f"{key}-{batch}") for key in range(5)])
        maintain(shard)
    keys = keys_of([3, 99, 1])
    low = pl.Series([ZERO + timedelta(hours=2), None, None], dtype=SCHEMAS[REPLACED].order["_time"])
    high = pl.Series([ZERO + timedelta(hours=4), None, ZERO + timedelta(hours=1)], dtype=low.dtype)
    rows = shard.snapshot().lookup(REPLACED, keys, low=low, high=high)
    assert rows.select("_key_id", "text").rows() == [(0, "3-2"), (0, "3-3"), (2, "1-0")]


def test_expired_rows_are_gone_at_once_and_for_good(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    for batch in range(4):
        with shard.transaction([A, B], Stamp(1, batch)) as tx:
            for table in TABLES:
                write(tx, table, [(key, 24 * batch, 1 if table == SUMMED else "x") for key in range(20)])
    before = shard.snapshot()
    with shard.transaction([A, B], Stamp(1, 4)) as tx:
        for table in TABLES:
            tx.expire(table, ZERO + timedelta(hours=72))
            assert {row[1] for row in found(tx, table)} == {72}
    assert {row[1] for row in found(before, SUMMED)} == {0, 24, 48, 72}
    for batch in range(5, 8):
        maintain(shard)
        with shard.transaction([A, B], Stamp(1, batch)) as tx:
            for table in TABLES:
                write(tx, table, [(1, 72, 1 if table == SUMMED else "x")])
    maintain(shard)
    for each in (shard, opened(tmp_path)):
        assert all({row[1] for row in found(each.snapshot(), table)} == {72} for table in TABLES)
    rows = {table: sum(entry.rows for entry in entries) for table, entries in shard.refresh().manifest.runs.items()}
    assert max(rows.values()) <= 22


def test_a_tombstone_removes_what_older_runs_have(tmp_path: Path) -> None:
    shard = opened(tmp_path, ShardOptions(flush_bytes=1, fan=3))
    for batch in range(9):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            rows, removed = ([(1, 0, "x"), (2, 0, "y")], []) if batch == 0 else ([], [(1, 0)] if batch == 3 else [])
            write(tx, REPLACED, [*rows, (3, batch, "z")], removed)
        maintain(shard)
        assert [row for row in found(shard.snapshot(), REPLACED) if row[0] < 3] == (
            [(1, 0, "x"), (2, 0, "y")] if batch < 3 else [(2, 0, "y")]
        )


def test_an_expired_row_does_not_bring_back_the_one_before_it(tmp_path: Path) -> None:
    table, day = f"{A}/sessions", timedelta(days=1)
    schema = TableSchema({"until": TIME}, ReplaceRule(), expires=pl.col("until"))
    shard = Shard(LocalFiles(tmp_path), {table: schema}, SMALL)
    for batch, days in enumerate((10, 1, 10)):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            key = keys_of([1 if batch < 2 else 2]).alias("_key").to_frame()
            until = pl.lit(ZERO + days * day).cast(TIME).alias("until")
            tx.replace(table, key, key.with_columns(until))
            if batch == 1:
                tx.expire(table, ZERO + 2 * day)
        maintain(shard)
        assert shard.snapshot().lookup(table, keys_of([1])).height == (batch == 0)
    assert shard.snapshot().lookup(table, keys_of([1, 2]))["_key_id"].to_list() == [1]


def test_a_table_of_expired_rows_has_no_run(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    for batch in range(3):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(1, 0, 1)])
            tx.expire(SUMMED, ZERO + timedelta(days=batch))
    maintain(shard)
    assert found(shard.snapshot(), SUMMED) == []
    assert shard.refresh().manifest.version == 1
    assert shard.refresh().manifest.runs == {}


def test_a_dropped_state_id_is_gone_and_may_be_filled_again(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    for batch in range(3):
        with shard.transaction([A, B], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(1, 0, 1)])
            write(tx, COLLECTED, [(1, 0, "x")])
        if batch == 1:
            maintain(shard)
    other = opened(tmp_path)
    assert found(other.snapshot(), SUMMED) == [(1, 0, 3, 1)]
    shard.drop(A)
    for each in (shard, other, opened(tmp_path)):
        assert found(each.snapshot(), SUMMED) == []
        assert found(each.snapshot(), COLLECTED) == [(1, 0, "x", 3)]
        assert each.state_ids() == [B]
    with shard.transaction([A], Stamp(0, 0)) as tx:
        write(tx, SUMMED, [(1, 0, 5)])
    maintain(shard)
    for each in (shard, other, opened(tmp_path)):
        assert found(each.snapshot(), SUMMED) == [(1, 0, 5, 5)]


def test_merges_bound_the_number_of_runs_and_delete_their_inputs(tmp_path: Path) -> None:
    shard = opened(tmp_path, ShardOptions(journal_bytes=2000, flush_bytes=1, part_rows=50, fan=3))
    for batch in range(30):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(key, 0, 1) for key in range(batch % 7, 30, 2)])
        maintain(shard)
    manifest = shard.refresh().manifest
    entries = manifest.runs[SUMMED]
    assert [entry.tier for entry in entries] == sorted((entry.tier for entry in entries), reverse=True)
    assert len(entries) <= 6
    assert len(list((tmp_path / "runs").iterdir())) <= len(manifest.names) + 4
    assert len(list((tmp_path / "journal").iterdir())) <= 3
    assert sum(row[2] for row in found(shard.snapshot(), SUMMED)) == sum(len(range(b % 7, 30, 2)) for b in range(30))
    assert shard.check() > 0


def test_a_snapshot_outlives_the_files_it_reads(tmp_path: Path) -> None:
    shard, reader = opened(tmp_path), opened(tmp_path)
    with shard.transaction([A], Stamp(1, 0)) as tx:
        write(tx, SUMMED, [(key, 0, 1) for key in range(20)])
    with shard.transaction([A], Stamp(1, 1)) as tx:
        pass
    maintain(shard)
    snapshot = reader.snapshot()
    names = set(reader.refresh().manifest.names)
    for batch in range(2, 9):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(key, 0, 1) for key in range(20)])
        maintain(shard)
    assert not names & {path.name for path in (tmp_path / "runs").iterdir()}
    assert found(snapshot, SUMMED) == [(key, 0, 1, 1) for key in range(20)]
    assert found(reader.snapshot(), SUMMED) == [(key, 0, 8, 1) for key in range(20)]


@pytest.mark.parametrize("fails", ["write", "sync", "rename", "link"])
def test_a_full_disk_stops_with_an_error_and_goes_on_with_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    shard = opened(tmp_path)
    for batch in range(3):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(1, 0, 1)])
    real = getattr(disk, fails)

    def full(*args: object) -> None:
        if fails == "write":
            real(args[0], memoryview(args[1])[:20], args[2])  # type: ignore[arg-type]
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, fails, full)
        with pytest.raises(Transient, match="No space left") as raised:
            maintain(shard)
        assert "free some disk space" in (raised.value.hint or "")
        if fails in ("write", "sync"):
            with pytest.raises(Transient, match="No space left"), shard.transaction([A], Stamp(1, 3)) as tx:
                write(tx, SUMMED, [(1, 0, 1)])
        for each in (shard, opened(tmp_path)):
            assert found(each.snapshot(), SUMMED) == [(1, 0, 3, 1)]
    with shard.transaction([A], Stamp(1, 3)) as tx:
        write(tx, SUMMED, [(1, 0, 1)])
    maintain(shard)
    for each in (shard, opened(tmp_path)):
        assert found(each.snapshot(), SUMMED) == [(1, 0, 4, 1)]
    assert not list(tmp_path.rglob("*.draft"))


def test_a_missing_file_is_damage(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    for batch in range(3):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(1, 0, 1)])
    maintain(shard)
    (run,) = (tmp_path / "runs").iterdir()
    content = run.read_bytes()
    run.unlink()
    with pytest.raises(Damaged, match="missing"):
        opened(tmp_path).snapshot()
    run.write_bytes(content)
    for journal in (tmp_path / "journal").iterdir():
        journal.unlink()
    with pytest.raises(Damaged, match="missing"):
        opened(tmp_path).snapshot()


def test_misuse_is_refused(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    with shard.transaction([A], Stamp(1, 0)) as tx:
        with pytest.raises(InvalidValue, match="no state id of the transaction"):
            tx.append(COLLECTED, frame(COLLECTED, [(1, 0, "x")]))
        with pytest.raises(InvalidValue, match="is not defined"):
            tx.append(f"{A}/other", frame(SUMMED, [(1, 0, 1)]))
        with pytest.raises(InvalidValue, match="use replace"):
            tx.append(REPLACED, frame(REPLACED, [(1, 0, "x")]))
        with pytest.raises(InvalidValue, match="use append"):
            tx.replace(SUMMED, frame(SUMMED, []), frame(SUMMED, []))
        with pytest.raises(InvalidValue, match="not among those replaced"):
            tx.replace(REPLACED, frame(REPLACED, []), frame(REPLACED, [(1, 0, "x")]))


def test_a_table_that_is_not_defined_here_is_left_to_others(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    for batch in range(3):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(1, 0, 1)])
    stranger = Shard(LocalFiles(tmp_path), {}, ShardOptions(flush_bytes=1))
    maintain(stranger)
    assert stranger.refresh().manifest.version == 0
    assert found(shard.snapshot(), SUMMED) == [(1, 0, 3, 1)]


def test_a_lock_of_a_dead_writer_is_free(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    child = os.fork()
    if child == 0:
        with shard.transaction([A], Stamp(1, 0)):
            os._exit(0)
    os.waitpid(child, 0)
    with shard.transaction([A], Stamp(1, 0)) as tx:
        write(tx, SUMMED, [(1, 0, 1)])
    assert found(shard.snapshot(), SUMMED) == [(1, 0, 1, 1)]


def test_a_shard_is_opened_by_reading_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = opened(tmp_path)
    for batch in range(3):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(1, 0, 1)])
    unpacked, unpack = list[bytes](), JournalRecord.unpack

    def counted(payload: bytes) -> JournalRecord:
        unpacked.append(payload)
        return unpack(payload)

    monkeypatch.setattr(JournalRecord, "unpack", counted)
    assert found(opened(tmp_path).snapshot(), SUMMED) == [(1, 0, 3, 1)]
    assert len(unpacked) == 3


def test_tables_are_defined_by_other_threads_while_an_operator_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard, numbers = opened(tmp_path), iter(range(1000))
    with shard.transaction([A], Stamp(1, 0)) as tx:
        write(tx, SUMMED, [(1, 0, 1)])

    def defining(table: str) -> str:
        shard.define(f"{B}/other{next(numbers)}", SCHEMAS[SUMMED])
        return state_id_of(table)

    monkeypatch.setattr("umbel.state.runs.writable_shard.state_id_of", defining)
    shard.drop(A)
    assert shard.state_ids() == []
