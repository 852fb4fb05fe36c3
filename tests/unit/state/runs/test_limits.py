"""Shards at limits: the sizes from which on something is done, a drop, files that go, what is read once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.unit.state.runs.tables import COLLECTED, SUMMED, ZERO, A, B, found, opened, write
from umbel.state.port import StaleBatch, Stamp
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.shard import ShardOptions


def test_sizes_are_those_from_which_on_there_is_a_flush_a_merge_and_the_next_file(tmp_path: Path) -> None:
    shard = opened(tmp_path, ShardOptions(fan=3))
    for batch in range(4):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(1, 0, 1)])
        size = shard.refresh().memtable.size
        maintain(shard, flush_bytes=size + 1)
        assert shard.refresh().memtable.size == size
        maintain(shard, flush_bytes=size)
        assert shard.refresh().memtable.size == 0
    (entry,) = shard.refresh().manifest.runs[SUMMED]
    assert (entry.tier, entry.rows) == (1, 1)
    end = shard.refresh().position
    for more, number in ((1, end.number), (0, end.number + 1)):
        again = opened(tmp_path, ShardOptions(journal_bytes=end.offset + more))
        with again.transaction([B], Stamp(1, 9)) as tx:
            write(tx, COLLECTED, [(1, 0, "x")])
        assert again.refresh().position.number == number
        end = again.refresh().position


def test_a_manifest_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = opened(tmp_path)
    for batch in range(3):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(1, 0, 1)])
    maintain(shard)
    shard.snapshot()
    names, read = list[str](), LocalFiles.read
    monkeypatch.setattr(LocalFiles, "read", lambda self, name, *at: (names.append(name), read(self, name, *at))[1])
    assert found(shard.snapshot(), SUMMED) == [(1, 0, 3, 1)]
    assert [name for name in names if name.startswith("manifest/")] == []


def test_a_drop_leaves_horizons_and_final_batches_of_others_and_none_of_its_own(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    for batch in range(2):
        with shard.transaction([A, B], Stamp(1, batch), undo=False) as tx:
            for table in (SUMMED, COLLECTED):
                write(tx, table, [(1, 24 * batch, 1 if table == SUMMED else "x")])
                tx.expire(table, ZERO + timedelta(hours=24))
    maintain(shard)
    shard.drop(A)
    for each in (shard, opened(tmp_path)):
        assert found(each.snapshot(), COLLECTED) == [(1, 24, "x", 1)]
        with pytest.raises(StaleBatch, match="without undo"), each.transaction([B], Stamp(1, 1)):
            pass
        with each.transaction([A], Stamp(1, 0)) as tx:
            write(tx, SUMMED, [(1, 0, 5)])
        assert found(each.snapshot(), SUMMED) == [(1, 0, 5, 5)]


def test_a_state_id_may_be_dropped_before_anything_is_written(tmp_path: Path) -> None:
    opened(tmp_path).drop(A)
    shard = opened(tmp_path)
    assert shard.state_ids() == []
    with shard.transaction([A], Stamp(1, 0)) as tx:
        write(tx, SUMMED, [(1, 0, 1)])
    assert found(opened(tmp_path).snapshot(), SUMMED) == [(1, 0, 1, 1)]


def test_a_reader_whose_files_go_while_it_opens_them_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = opened(tmp_path)
    for batch in range(3):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(1, 0, 1)])
    maintain(shard)
    real, calls = LocalFiles.map, list[str]()

    def deleted_at_first(self: LocalFiles, name: str) -> object:
        calls.append(name)
        if len(calls) == 1:
            raise FileNotFoundError(name)
        return real(self, name)

    monkeypatch.setattr(LocalFiles, "map", deleted_at_first)
    assert found(opened(tmp_path).snapshot(), SUMMED) == [(1, 0, 3, 1)]
    assert len(calls) > 1
