"""Maintenance of a shard beside its writer: flushes into runs and tiered merges.

New files are computed without the lock of writers, from files that never change; then a new manifest swaps them in between two
transactions. A lock of its own lets one thread or process do this at a time.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING

import polars as pl

from umbel.errors import Transient
from umbel.state.port import Fenced
from umbel.state.runs.journal import FOLDER as JOURNAL
from umbel.state.runs.manifest import FOLDER as MANIFESTS
from umbel.state.runs.manifest import RunEntry, RunPart, WrittenRuns, retained
from umbel.state.runs.reading import SortedRows, merged_ranges
from umbel.state.runs.rules import HASH, ReplaceRule, described_order
from umbel.state.runs.run import pack_run
from umbel.state.runs.shard import RUNS, Shard
from umbel.state.runs.views import ShardView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from umbel.state.runs.manifest import Manifest
    from umbel.state.runs.rules import TableSchema

MAINTENANCE_LOCK = "maintenance.lock"
EXPIRING = 0.5
"""Rows of newer runs, as a share of the oldest one's, at which runs whose rows expire are merged."""
PORTIONS = 16
"""Portions in which the rows of one file are merged: a merge takes several times the memory of its rows."""
_log = logging.getLogger("umbel.state")


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The runs to merge next.

    Args:
        table: their table.
        inputs: adjacent runs, oldest first.
        complete: True if the table has no older runs.
        tier: of the run that they become.
    """

    table: str
    inputs: tuple[RunEntry, ...]
    complete: bool
    tier: int


def maintain(shard: Shard, *, flush_bytes: int | None = None) -> bool:
    """Flush and merge what is due; False if another thread or process does.

    Args:
        shard: the shard.
        flush_bytes: bytes of final rows from which on they are flushed; by default as the shard's options say.

    Raises:
        Transient: the disk is full or fails; the shard is as before.
        Damaged: a file differs from its checksum; the shard is as before.
    """
    limit = shard.options.flush_bytes if flush_bytes is None else flush_bytes
    with shard.files.locked(MAINTENANCE_LOCK, wait=False) as is_alone:
        if not is_alone:
            return False
        shard.files.sweep(RUNS)
        try:
            _flush(shard, limit)
            while (plan := next_merge(shard, shard.refresh().manifest)) is not None:
                if not _merge(shard, plan):
                    break
            _clean_later(shard)
        except Fenced:
            return False
    return True


@contextmanager
def _publishing(shard: Shard, begun: float) -> Iterator[ShardView]:
    """Hold the lock of writers to publish runs that were begun at a time.

    Raises:
        Fenced: they may have been deleted by another process, to which no manifest named them.
    """
    with shard.writing() as now:
        if time.monotonic() - begun > shard.files.grace / 2:
            raise Fenced(f"maintenance of {shard.files} took too long")
        yield now


def next_merge(shard: Shard, manifest: Manifest) -> MergePlan | None:
    """Return the runs to merge next; else None.

    These are those of the lowest tier with enough. Else they are all runs of a table whose rows are replaced, when the newer ones
    have as many rows as the oldest: what is not needed takes no more room then than what is. Else a run of a high tier would hold
    it until there are enough of its tier. Where rows expire it is when they have half as many: such a table does not grow, and
    its size in between is that of what was merged last.
    """
    schemas = shard.schemas
    known = {table: entries for table, entries in manifest.runs.items() if table in schemas}
    found = list[MergePlan]()
    for table, entries in known.items():
        for tier in {entry.tier for entry in entries}:
            inputs = tuple(entry for entry in entries if entry.tier == tier)
            if len(inputs) >= shard.options.fan:
                found.append(MergePlan(table, inputs, inputs[0] == entries[0], tier + 1))
    if found:
        return min(found, key=attrgetter("tier"))
    for table, (oldest, *newer) in known.items():
        schema = schemas[table]
        bound = inf
        if table in manifest.horizons:
            bound = oldest.rows * EXPIRING
        elif isinstance(schema.rule, ReplaceRule) and not schema.order:
            bound = oldest.rows
        if oldest.tier and sum(entry.rows for entry in newer) >= bound:
            return MergePlan(table, (oldest, *newer), complete=True, tier=oldest.tier)
    return None


def _flush(shard: Shard, limit: int) -> bool:
    """Write the final rows in memory as runs, if there are so many bytes.

    Pending records remain live.
    """
    view, begun = shard.refresh(), time.monotonic()
    memtable, manifest, schemas = view.memtable, view.manifest, shard.schemas
    if not shard.is_due(limit):
        return False
    if not set(memtable.blocks) <= set(schemas):
        return False  # a process that knows all tables will do it
    fresh = {}
    for table, blocks in memtable.blocks.items():
        horizon = memtable.horizons.get(table)
        parts = _written(shard, table, schemas[table], blocks, horizon, complete=not manifest.runs.get(table))
        if parts:
            fresh[table] = RunEntry(0, parts)
    with _publishing(shard, begun) as now:
        if not now.manifest.has_same_journal(manifest):
            _discard(shard, [part for entry in fresh.values() for part in entry.parts])
            return False
        runs = dict(now.manifest.runs)
        for table, entry in fresh.items():
            runs[table] = (*runs.get(table, ()), entry)
        shard.publish(
            replace(
                now.manifest,
                position=view.position,
                live=memtable.live,
                stamps=dict(memtable.stamps),
                final=dict(memtable.final),
                horizons=dict(memtable.horizons),
                dropped={name: at for name, at in manifest.dropped.items() if at > view.position},
                runs=runs,
                written=now.manifest.written
                + WrittenRuns(flushes=1, flushed=sum(entry.size for entry in fresh.values())),
            )
        )
    return True


def _merge(shard: Shard, plan: MergePlan) -> bool:
    """Merge runs into one of the next tier; return False if they were dropped meanwhile."""
    view, begun = shard.refresh(), time.monotonic()
    names = [part.name for entry in plan.inputs for part in entry.parts]
    schema = shard.schemas.get(plan.table)
    if schema is None or not set(names) <= set(view.files):
        return False
    sources, horizon = [view.files[name] for name in names], view.memtable.horizons.get(plan.table)
    del view  # with the rows in memory, which the next batches replace
    parts = _written(shard, plan.table, schema, sources, horizon, complete=plan.complete)
    with _publishing(shard, begun) as now:
        entries = now.manifest.runs.get(plan.table, ())
        if not set(plan.inputs) <= set(entries):
            _discard(shard, parts)
            return False
        at = entries.index(plan.inputs[0])
        merged = (RunEntry(plan.tier, parts),) if parts else ()
        left = [*entries[:at], *merged, *entries[at + len(plan.inputs) :]]
        runs = {**now.manifest.runs, plan.table: tuple(left)}
        written = now.manifest.written + WrittenRuns(merges=1, merged=sum(part.size for part in parts))
        runs = {table: each for table, each in runs.items() if each}
        shard.publish(replace(now.manifest, runs=runs, written=written))
    return True


def _discard(shard: Shard, parts: Sequence[RunPart]) -> None:
    """Delete runs that nobody will publish."""
    for part in parts:
        shard.files.delete(f"{RUNS}/{part.name}")


def _written(
    shard: Shard,
    table: str,
    schema: TableSchema,
    sources: Sequence[SortedRows],
    horizon: int | None,
    *,
    complete: bool,
) -> tuple[RunPart, ...]:
    """Write the merge of sources as the files of a run, range by range."""
    parts, size = [], shard.options.part_rows
    merged = merged_ranges(sources, schema, max(1, size // PORTIONS), complete=complete, horizon=horizon)
    if complete or schema.rule.drops_early:
        merged = (schema.unexpired(piece, horizon) for piece in merged)
    for part, data in map(partial(_packed, table, schema), _joined(merged, size)):  # which refers to no rows meanwhile
        shard.files.put(f"{RUNS}/{part.name}", data)
        parts.append(part)
        del data
    return tuple(parts)


def _packed(table: str, schema: TableSchema, rows: pl.DataFrame) -> tuple[RunPart, memoryview]:
    """Return a new file of a run, and its bytes."""
    name = f"{uuid.uuid4().hex}.run"
    data = pack_run(rows, table, described_order(schema), name)
    return RunPart(name, rows.height, len(data), rows[HASH][0], rows[HASH][-1]), data


def _joined(pieces: Iterator[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """Yield adjacent pieces as frames of about so many rows; none is empty."""
    waiting: list[pl.DataFrame] = []
    for piece in pieces:
        waiting += [piece] if piece.height else []
        del piece
        if sum(each.height for each in waiting) >= rows - rows // (2 * PORTIONS):
            yield _taken(waiting)
    if waiting:
        yield _taken(waiting)


def _taken(pieces: list[pl.DataFrame]) -> pl.DataFrame:
    """Return pieces as one frame, and remove them.

    Both would be in memory until the file is written.
    """
    found = pl.concat(pieces, rechunk=True)
    pieces.clear()
    return found


def clean(shard: Shard, *, pinned: bool = False) -> None:
    """Delete the files that no retained manifest names; readers that mapped them keep them.

    Args:
        shard: the shard.
        pinned: True to delete them also while somebody copies them.
    """
    with shard.writing():
        for folder in (MANIFESTS, JOURNAL):
            shard.files.sweep(folder)
        manifests = retained(shard.files)
    # A copy pins first, then reads the latest manifest: seen after the manifests, no pin means that no copy needs older files.
    if not manifests or (not pinned and shard.files.is_pinned()):
        return
    names = set().union(*(manifest.names for manifest in manifests))
    for name in shard.files.deletable(RUNS):
        if name not in names:
            shard.files.delete(f"{RUNS}/{name}")
    before = min(manifest.position.number for manifest in manifests)
    shard.journal.delete(before, set().union(*(manifest.journals for manifest in manifests)))


def _clean_later(shard: Shard) -> None:
    """Delete what no retained manifest names, now or after the next maintenance."""
    try:
        clean(shard)
    except Transient as error:
        _log.warning("files of %s that are not needed any more cannot be deleted yet: %s", shard.files, error)


class Maintainer:
    """A thread that maintains the shards that have much in memory.

    It starts when there is something to do.

    Args:
        stall: the bytes of final rows, as a multiple of the limit of flushes, at which a writer waits for the thread.
    """

    def __init__(self, stall: int = 2) -> None:
        self._stall = stall
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._due: dict[Shard, None] = {}
        self._busy: Shard | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.errors: dict[Shard, Exception] = {}
        """The error of the last maintenance of a shard; it is tried again after the next transaction."""

    def after(self, shard: Shard) -> None:
        """Maintain a shard that was written, if it is due.

        Waits for it while the writer is far ahead.

        Raises:
            Exception: the error of the last maintenance, if it failed and the writer is far ahead.
        """
        if not shard.is_due(shard.options.flush_bytes):
            return
        if self._process != os.getpid():  # a fork has no thread, and its locks may be held by nobody
            self._begin()
        with self._changed:
            self._due[shard] = None
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="state-maintenance", daemon=True)
                self._thread.start()
            if shard.memtable_size() >= self._stall * shard.options.flush_bytes:
                self._changed.wait_for(lambda: shard not in self._due and self._busy is not shard)
                if shard in self.errors:
                    raise self.errors[shard]

    def close(self) -> None:
        """End the thread after the work at hand."""
        if self._process != os.getpid():
            return
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._due or self._is_closed)
                if self._is_closed:
                    self._due.clear()
                    self._changed.notify_all()
                    return
                self._busy = next(iter(self._due))
                del self._due[self._busy]
            shard = self._busy
            try:
                maintain(shard)
                self.errors.pop(shard, None)
            except Exception as error:  # noqa: BLE001 - retained for the writer: the thread must not end while it waits
                self.errors[shard] = error
                _log.warning("maintenance of state failed and is tried again after the next transaction: %s", error)
