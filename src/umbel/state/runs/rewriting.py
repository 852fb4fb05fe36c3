"""Rewriting of a shard without the rows of some keys and their bytes.

All rows in memory become runs, the journal begins anew, and the files before that are deleted: they also have what was deleted or
replaced before. Runs without such rows stay as they are. It takes the place of a manifest by another one, so it may be
interrupted at any point and repeated.

In a bucket other processes may maintain the shard meanwhile. What they began before cannot be published any more, since its runs
and its journal were replaced; objects that are left of it are deleted if they have such rows. The others are left for as long
as a process may be about to publish them.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from umbel.errors import Damaged
from umbel.state.failpoints import reach
from umbel.state.runs.addresses import expanded, hash_keys
from umbel.state.runs.maintenance import MAINTENANCE_LOCK, clean
from umbel.state.runs.manifest import RunEntry, RunPart, WrittenRuns, retained
from umbel.state.runs.memtable import state_id_of
from umbel.state.runs.rules import HASH, described_order
from umbel.state.runs.run import RunFile, pack_run
from umbel.state.runs.shard import RUNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from umbel.state.runs.addresses import Flags
    from umbel.state.runs.files import ShardJournal
    from umbel.state.runs.manifest import Manifest
    from umbel.state.runs.reading import SortedRows
    from umbel.state.runs.shard import Shard
    from umbel.state.runs.views import ShardView


def last_pending(shard: Shard) -> int | None:
    """Return the last batch that can still run again, None for none."""
    pending = shard.refresh().memtable.pending.values()
    return max((write.stamp.batch for writes in pending for write in writes), default=None)


def rewrite_without(shard: Shard, keys: Mapping[str, pl.Series]) -> int:
    """Rewrite a shard without the rows of some keys; return their number.

    No batch of this shard may be running, and none that has written it may run again.

    Args:
        shard: the shard.
        keys: the encoded keys, by the state id whose rows have them.

    Raises:
        Fenced: another process has published runs meanwhile; the shard is as before.
        Transient: the disk is full or fails; the shard is as before.
        Damaged: a file differs from its checksum; the shard is as before.
    """
    with shard.files.locked(MAINTENANCE_LOCK):
        shard.files.sweep(RUNS)
        with shard.writing() as view:
            rewriting = _Rewriting(shard, view, keys)
            manifest = rewriting.manifest(shard.journal)
            reach("rewritten")
            # Twice: the files of the version before the last one are retained, too.
            shard.publish(shard.publish(manifest))
        reach("published")
        clean(shard, pinned=True)  # a backup that copies them begins again
        _delete_left(shard, view, keys)
        shard.refresh()
    return rewriting.removed


def _delete_left(shard: Shard, before: ShardView, keys: Mapping[str, pl.Series]) -> None:
    """Delete unnamed runs left by `clean`: replaced ones, and those with such rows."""
    named = set().union(*(manifest.names for manifest in retained(shard.files)))
    for name in shard.files.list(RUNS):
        if name not in named and (name in before.files or _has_rows(shard, name, keys)):
            shard.files.delete(f"{RUNS}/{name}")
            reach("run removed")


def _has_rows(shard: Shard, name: str, keys: Mapping[str, pl.Series]) -> bool:
    """Return whether an unnamed run has rows with the keys, or cannot be read."""
    try:
        run = RunFile(pa.py_buffer(shard.files.read(f"{RUNS}/{name}")), name)
        own = keys.get(state_id_of(run.table))
        return own is not None and bool(_hits(run, own).any())
    except FileNotFoundError:
        return False
    except Damaged:
        return True


class _Rewriting:
    """The new files of one shard."""

    def __init__(self, shard: Shard, view: ShardView, keys: Mapping[str, pl.Series]) -> None:
        self._shard, self._view, self._keys = shard, view, keys
        self._written = 0
        self.removed = 0

    def manifest(self, journal: ShardJournal) -> Manifest:
        """Return a manifest of the rewritten runs; the journal goes on in a new file."""
        view, memtable = self._view, self._view.memtable
        tables = sorted({*view.manifest.runs, *memtable.tables})
        runs = {table: entries for table in tables if (entries := self._entries(table))}
        horizons = {table: at for table in {*tables, *memtable.horizons} if (at := memtable.horizon(table)) is not None}
        final = dict(memtable.final)
        for state_id, writes in memtable.pending.items():
            if writes:
                final[state_id] = (writes[-1].stamp.batch, writes[-1].stamp.step)
        return replace(
            view.manifest,
            position=journal.begin(view.position.number + 1),
            live=(),
            stamps=dict(memtable.stamps),
            final=final,
            horizons=horizons,
            dropped={},
            runs=runs,
            written=view.manifest.written + WrittenRuns(flushes=1, flushed=self._written),
        )

    def _entries(self, table: str) -> tuple[RunEntry, ...]:
        found, keys = list[RunEntry](), self._keys.get(state_id_of(table))
        for entry in self._view.manifest.runs.get(table, ()):
            parts = tuple(part for each in entry.parts for part in self._part(table, each, keys))
            if parts:
                found.append(RunEntry(entry.tier, parts))
        schema = self._shard.schemas.get(table)
        order = None if schema is None else described_order(schema)
        for block in self._view.memtable.sources(table):
            frame = block.frame if keys is None else block.frame.filter(pl.Series(~_hits(block, keys)))
            self.removed += block.rows - frame.height
            if frame.height:
                found.append(RunEntry(0, (self._write(table, frame, order),)))
        return tuple(found)

    def _part(self, table: str, part: RunPart, keys: pl.Series | None) -> Sequence[RunPart]:
        run = self._view.files[part.name]
        hits = None if keys is None else _hits(run, keys)
        if hits is None or not hits.any():
            return (part,)
        frame = run.slice(0, run.rows).filter(pl.Series(~hits))
        self.removed += run.rows - frame.height
        return (self._write(table, frame, run.order),) if frame.height else ()

    def _write(self, table: str, frame: pl.DataFrame, order: Sequence[str] | None) -> RunPart:
        name = f"{uuid.uuid4().hex}.run"
        data = pack_run(frame, table, order, name)
        self._shard.files.put(f"{RUNS}/{name}", data)
        self._written += len(data)
        return RunPart(name, frame.height, len(data), frame[HASH][0], frame[HASH][-1])


def _hits(rows: SortedRows, keys: pl.Series) -> Flags:
    """Return a mask of the rows that have one of the keys."""
    found = np.zeros(rows.rows, np.bool_)
    candidates, owners = expanded(*rows.find(hash_keys(keys)))
    if len(candidates):
        found[candidates] = (rows.keys(candidates) == keys.gather(owners)).to_numpy()
    return found
