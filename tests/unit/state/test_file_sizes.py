"""The parts of a store in files, and how much its maintenance has written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.contracts.store_entries import A, Entries
from umbel.state.file import FileStore
from umbel.state.port import FileSizes, Stamp
from umbel.state.runs.manifest import WrittenRuns
from umbel.state.runs.shard import ShardOptions


def _filled(place: Path, batches: int) -> FileStore:
    """Return a store whose rows are flushed after each batch; two runs of a tier are merged."""
    store = FileStore(place, 1, ShardOptions(flush_bytes=1, fan=2), is_synced=False)
    for batch in range(batches):
        with store.transaction(0, [A], Stamp(1, batch)) as tx:
            Entries(tx).put([b"%d" % (batch * 100 + n) for n in range(100)], [os.urandom(50) for _ in range(100)])
        store.close()  # waits for the maintenance
        store = FileStore(place, 1, ShardOptions(flush_bytes=1, fan=2), is_synced=False)
    return store


def _sizes(store: FileStore) -> FileSizes:
    (size,) = store.sizes()
    assert size.files is not None
    assert size.size == size.files.journal + size.files.run_bytes
    return size.files


def test_flushes_and_merges_are_counted_and_remembered(tmp_path: Path) -> None:
    found = _sizes(_filled(tmp_path / "store", 9))
    assert found.written.flushes >= 4
    assert found.written.merges >= 2
    assert found.written.flushed >= found.written.flushes * 100 * 50
    assert 1 < found.written.amplification < 9
    assert found.run_bytes <= found.written.flushed + found.written.merged
    assert max(found.runs) >= 1
    assert sum(found.runs.values()) >= 1
    assert _sizes(FileStore(tmp_path / "store", 1)).written == found.written


def test_a_store_nobody_wrote_has_no_parts(tmp_path: Path) -> None:
    found = _sizes(FileStore(tmp_path / "store", 1))
    assert (found.journal, found.memory, found.runs, found.run_bytes, found.written) == (0, 0, {}, 0, WrittenRuns())
    assert found.written.amplification == 1


def test_rows_in_memory_are_measured_before_they_are_flushed(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", 1, is_synced=False)
    for batch in range(2):
        with store.transaction(0, [A], Stamp(1, batch)) as tx:
            Entries(tx).put([b"k"], [b"x" * 1000])
    found = _sizes(store)
    assert found.memory == pytest.approx(2000, rel=0.3)
    assert found.journal > 0
    assert found.written.flushes == 0
