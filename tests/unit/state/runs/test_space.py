"""What is not needed any more leaves the disk and the memory, however long a shard runs."""

from __future__ import annotations

import gc
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from tests.unit.state.runs.tables import (
    COLLECTED,
    REPLACED,
    SCHEMAS,
    SUMMED,
    TABLES,
    ZERO,
    A,
    B,
    found,
    opened,
    scanned,
    write,
)
from umbel.state.port import Stamp
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.run import RunFile
from umbel.state.runs.shard import Shard, ShardOptions


@pytest.mark.parametrize(("fan", "most_batches"), [(3, 15), (12, 13)])
def test_expired_rows_leave_the_disk_however_long_a_shard_runs(tmp_path: Path, fan: int, most_batches: int) -> None:
    """Runs of high tiers held them until so many runs of their tier were there: the longer it ran, the more of them.

    Where a full merge is due before so many runs of a tier are there, no more than half of what is needed is left over.
    """
    live = 8
    shard = Shard(LocalFiles(tmp_path, is_synced=False), SCHEMAS, ShardOptions(flush_bytes=1, fan=fan))
    most = {COLLECTED: 0, SUMMED: 0, REPLACED: 0}
    for batch in range(100):
        with shard.transaction([A, B], Stamp(1, batch), undo=False) as tx:
            for table in most:
                hours = [batch] if table == REPLACED else [batch, batch]
                write(
                    tx,
                    table,
                    [(key, hour, key if table == SUMMED else str(key)) for hour in hours for key in range(20)],
                )
                tx.expire(table, ZERO + timedelta(days=1, hours=batch - live))
        maintain(shard)
        if batch > 2 * live:
            for table, runs in shard.refresh().manifest.runs.items():
                most[table] = max(most[table], sum(run.rows for run in runs))
    for table, rows in most.items():
        flushed = 40 if table == COLLECTED else 20
        assert rows <= most_batches * flushed, table
    assert len(scanned(shard.snapshot(), REPLACED)) == 20 * live


def runs_in_use() -> int:
    return sum(isinstance(each, RunFile) for each in gc.get_objects())


def test_runs_that_were_merged_are_unmapped_at_once(tmp_path: Path) -> None:
    """They referred to themselves: their pages and the room of their deleted files were held until Python looked for cycles."""
    shard = opened(tmp_path, ShardOptions(flush_bytes=1, fan=3))
    gc.collect()
    gc.disable()
    before = runs_in_use()
    try:
        for batch in range(20):
            with shard.transaction([A, B], Stamp(1, batch), undo=False) as tx:
                for table in TABLES:
                    write(tx, table, [(key, batch, key if table == SUMMED else str(key)) for key in range(20)])
            maintain(shard)
            assert [found(shard.snapshot(), table) for table in TABLES] == [
                scanned(shard.snapshot(), t) for t in TABLES
            ]
        assert runs_in_use() - before <= len(shard.refresh().files)
    finally:
        gc.enable()


class _Watched(LocalFiles):
    """Files of a shard that note how many rows are in frames when a run is written."""

    rows = 0

    def put(self, name: str, data: bytes | memoryview) -> None:
        self.rows = sum(each.height for each in gc.get_objects() if isinstance(each, pl.DataFrame))
        super().put(name, data)


def test_a_merge_lets_go_of_rows_before_it_writes_them(tmp_path: Path) -> None:
    """Pieces, the rows of a file, and the rows in memory before the flush were there until the merge had ended."""
    files, keys = _Watched(tmp_path, is_synced=False), 20_000
    shard = Shard(files, SCHEMAS, ShardOptions(flush_bytes=1, part_rows=keys, fan=2))
    others = sum(each.height for each in gc.get_objects() if isinstance(each, pl.DataFrame))
    for batch in range(2):
        with shard.transaction([A], Stamp(1, batch), undo=False) as tx:
            write(tx, REPLACED, [(key, batch, str(key)) for key in range(keys)])
        del tx
        maintain(shard)
    (run,) = shard.refresh().manifest.runs[REPLACED]
    assert len(run.parts) == 2
    assert run.rows == 2 * keys
    assert files.rows - others < keys // 8
