"""Shards: keyed state in tables, as a journal, blocks in memory and sorted runs.

One process at a time writes a shard, under a lock; any number read it. All follow the manifest and the journal from where
they last read, so a shard may be written by one process now and by another one next.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from umbel.errors import Damaged, InvalidValue
from umbel.state.port import Stamp
from umbel.state.runs.addresses import merge_frames, stored_frame
from umbel.state.runs.journal import JOURNAL_BYTES, Journal, JournalRecord, PlacedRecord
from umbel.state.runs.manifest import JournalPosition, Manifest, publish, read_latest
from umbel.state.runs.memtable import Memtable, state_id_of
from umbel.state.runs.reading import SortedRows, lookup, merged_ranges
from umbel.state.runs.rules import REMOVED, ReplaceRule, TableSchema
from umbel.state.runs.run import REMEDY, Block, RunFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from umbel.state.runs.files import ShardFiles

RUNS = "runs"
WRITE_LOCK = "write.lock"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """Sizes of a shard's parts.

    Args:
        journal_bytes: size from which on a file of the journal is followed by the next one.
        flush_bytes: bytes of final rows in memory from which on they are flushed into runs.
        part_rows: rows of one file of a run, and rows that are merged at once.
        fan: runs of a tier that are merged into one of the next.
    """

    journal_bytes: int = JOURNAL_BYTES
    flush_bytes: int = 64 << 20
    part_rows: int = 1 << 20
    fan: int = 6


@dataclass(frozen=True, slots=True)
class ShardView:
    """A consistent state of a shard: immutable files, and the records read so far."""

    manifest: Manifest = field(default_factory=Manifest)
    memtable: Memtable = field(default_factory=Memtable)
    position: JournalPosition = field(default_factory=JournalPosition)
    files: Mapping[str, RunFile] = field(default_factory=dict)

    def runs(self, table: str) -> list[RunFile]:
        """Return the opened files of a table's runs, oldest first."""
        return [self.files[part.name] for entry in self.manifest.runs.get(table, ()) for part in entry.parts]


class ShardSnapshot:
    """An unchanging read view of the committed tables of a shard.

    Args:
        view: the state read.
        schemas: of the tables.
    """

    def __init__(self, view: ShardView, schemas: Mapping[str, TableSchema]) -> None:
        self._view, self._schemas = view, schemas

    def lookup(
        self, table: str, keys: pl.Series, *, low: pl.Series | None = None, high: pl.Series | None = None
    ) -> pl.DataFrame:
        """Return the rows of some keys, sorted by key index and order.

        Args:
            table: its full name, `state_id/table`.
            keys: encoded keys, each once.
            low: for each key, the lowest value of the first column of the order; null is unbounded.
            high: for each key, the value from which on it is left out.

        Returns:
            `_key_id`, the order and the columns; `_key_id` is the index of a row's key among `keys`.
        """
        return lookup(self.sources(table), self.schema(table), keys, self.horizon(table), low=low, high=high)

    def scan(self, table: str, rows: int = 1 << 20) -> Iterator[pl.DataFrame]:
        """Yield all rows of a table in pieces, sorted by address.

        Args:
            table: its full name.
            rows: about the number of rows read at once.

        Yields:
            `_key`, the order and the columns.
        """
        schema = self.schema(table)
        for piece in merged_ranges(self.sources(table), schema, rows, complete=True):
            yield schema.unexpired(piece, self.horizon(table)).select("_key", *schema.shown)

    def horizon(self, table: str) -> int | None:
        """Return the horizon of a table in µs, None if there is none."""
        return self._view.memtable.horizon(table)

    def sources(self, table: str) -> list[SortedRows]:
        """Return the runs and blocks of a table, oldest first."""
        return [*self._view.runs(table), *self._view.memtable.sources(table)]

    def schema(self, table: str) -> TableSchema:
        """Return the schema of a table; InvalidValue if it is not defined."""
        if table not in self._schemas:
            raise InvalidValue(f"table {table!r} is not defined", hint="call Shard.define before reading or writing it")
        return self._schemas[table]


class ShardTransaction(ShardSnapshot):
    """A view of a shard that reads its own writes.

    Args:
        view: the state at its start.
        schemas: of the tables.
        state_ids: the operators that may be written.
    """

    def __init__(self, view: ShardView, schemas: Mapping[str, TableSchema], state_ids: Sequence[str]) -> None:
        super().__init__(view, schemas)
        self._state_ids = frozenset(state_ids)
        self._blocks: dict[str, list[Block]] = {}
        self._horizons: dict[str, int] = {}

    def append(self, table: str, rows: pl.DataFrame) -> None:
        """Add rows to a summed or collected table.

        Args:
            table: its full name.
            rows: `_key`, the order, the columns; for a collected table `_weight`, too.
        """
        self._must_own(table)
        if isinstance(self.schema(table).rule, ReplaceRule):
            raise InvalidValue(f"table {table!r} replaces its entries", hint="use replace, with the addresses replaced")
        self._add(table, rows)

    def replace(self, table: str, addresses: pl.DataFrame, rows: pl.DataFrame) -> None:
        """Replace the groups of rows at some addresses.

        Args:
            table: its full name.
            addresses: `_key` and the order, of every address touched; one without rows is removed.
            rows: `_key`, the order, the columns; those of one address are stored in this order.

        Raises:
            InvalidValue: a row's address is not among the addresses.
        """
        self._must_own(table)
        schema = self.schema(table)
        if not isinstance(schema.rule, ReplaceRule):
            raise InvalidValue(f"table {table!r} does not replace its entries", hint="use append")
        address = ["_key", *schema.order]
        touched = addresses.select(address).unique()
        gone = touched.join(rows.select(address).unique(), on=address, how="anti")
        if touched.height - gone.height != rows.select(address).unique().height:
            raise InvalidValue(f"table {table!r}: rows have addresses that are not among those replaced")
        nothing = [pl.lit(None, dtype).alias(name) for name, dtype in schema.columns.items()]
        tombstones = gone.with_columns(*nothing, pl.lit(value=True).alias(REMOVED))
        present = rows.with_columns(pl.lit(value=False).alias(REMOVED)).select(tombstones.columns)
        self._add(table, pl.concat([present, tombstones]))

    def expire(self, table: str, before: datetime) -> None:
        """Raise the horizon of a table: rows that expire until then disappear.

        Args:
            table: its full name.
            before: the instant; an earlier one than before changes nothing.
        """
        self._must_own(table)
        horizon = (before - _EPOCH) // _MICROSECOND
        known = self.horizon(table)
        self._horizons[table] = horizon if known is None else max(horizon, known)

    def horizon(self, table: str) -> int | None:
        return self._horizons.get(table, super().horizon(table))

    def sources(self, table: str) -> list[SortedRows]:
        return [*super().sources(table), *self._blocks.get(table, ())]

    def record(self, stamp: Stamp, state_ids: Sequence[str], *, undo: bool) -> JournalRecord:
        """Return the writes as a record of the journal."""
        frames = {
            table: merge_frames([block.frame for block in blocks], self.schema(table), complete=False)
            for table, blocks in self._blocks.items()
        }
        return JournalRecord(stamp, tuple(state_ids), frames, self._horizons, undo)

    def _add(self, table: str, rows: pl.DataFrame) -> None:
        if rows.height:
            self._blocks.setdefault(table, []).append(Block(stored_frame(rows, self.schema(table), table)))

    def _must_own(self, table: str) -> None:
        if state_id_of(table) not in self._state_ids:
            raise InvalidValue(f"table {table!r} belongs to no state id of the transaction: {sorted(self._state_ids)}")


class Shard:
    """A shard of keyed state. May be used by several threads and processes.

    Args:
        files: where it is.
        schemas: of its tables, by full name `state_id/table`; more may be defined later.
        options: sizes of its parts.
    """

    def __init__(
        self, files: ShardFiles, schemas: Mapping[str, TableSchema] | None = None, options: ShardOptions | None = None
    ) -> None:
        self.files, self.options = files, options or ShardOptions()
        self.schemas: dict[str, TableSchema] = dict(schemas or {})
        self.journal = Journal(files, self.options.journal_bytes)
        self._view = ShardView()
        self._following, self._writing = threading.Lock(), threading.Lock()
        self._writer: int | None = None
        self._is_opened = False

    def define(self, table: str, schema: TableSchema) -> None:
        """Define a table by its full name; the schema must not change later."""
        self.schemas[table] = schema

    def snapshot(self) -> ShardSnapshot:
        """Return a read view of the committed state."""
        return ShardSnapshot(self.refresh(), self.schemas)

    def stamp(self, state_id: str) -> Stamp | None:
        """Return the stamp of a state id's last committed write, None without one."""
        return self.refresh().memtable.stamps.get(state_id)

    def state_ids(self) -> list[str]:
        """Return the state ids with state here, sorted."""
        return sorted(self.refresh().memtable.stamps)

    @contextmanager
    def transaction(self, state_ids: Sequence[str], stamp: Stamp, *, undo: bool = True) -> Iterator[ShardTransaction]:
        """Open the one write transaction; committed when the block ends, dropped when it raises.

        Args:
            state_ids: the operators whose state is written; each gets the stamp.
            stamp: the batch. Earlier writes of the same step, or of a later step of the same batch, are replaced.
            undo: False if the batch will not be run again.

        Raises:
            Fenced: the stamp of a state id has a higher epoch.
            StaleBatch: the stamp of a state id has a later batch, or this batch was written without undo.
            Transient: the disk is full or fails; nothing was written.
        """
        with self.writing() as view:
            view.memtable.must_accept(state_ids, stamp)
            memtable = view.memtable.begun(state_ids, stamp, self.schemas)
            transaction = ShardTransaction(replace(view, memtable=memtable), self.schemas, state_ids)
            yield transaction
            placed = self.journal.append(view.position, transaction.record(stamp, state_ids, undo=undo))
            memtable = memtable.added(placed, state_ids, self.schemas)
            with self._following:
                self._view = replace(view, memtable=memtable, position=JournalPosition(placed.number, placed.end))

    def drop(self, state_id: str) -> None:
        """Delete all state of a state id."""
        with self.writing() as view:
            manifest = view.manifest
            own = {table for table in manifest.runs if state_id_of(table) == state_id}
            live = [
                replace(each, state_ids=tuple(i for i in each.state_ids if i != state_id)) for each in manifest.live
            ]
            self.publish(
                replace(
                    manifest,
                    live=tuple(each for each in live if each.state_ids),
                    stamps={name: each for name, each in manifest.stamps.items() if name != state_id},
                    final={name: each for name, each in manifest.final.items() if name != state_id},
                    horizons={t: each for t, each in manifest.horizons.items() if state_id_of(t) != state_id},
                    dropped={**manifest.dropped, state_id: view.position},
                    runs={table: each for table, each in manifest.runs.items() if table not in own},
                )
            )

    def check(self) -> int:
        """Verify all files; return the number of rows.

        Raises:
            Damaged: a file differs from its checksums.
        """
        with self._following:
            self._view = ShardView()
        view = self.refresh()
        blocks = [block for table in self._tables(view) for block in view.memtable.sources(table)]
        return sum(run.check() for run in view.files.values()) + sum(block.rows for block in blocks)

    @staticmethod
    def _tables(view: ShardView) -> set[str]:
        pending = (write for writes in view.memtable.pending.values() for write in writes)
        return {*view.memtable.blocks, *(table for write in pending for table in write.blocks)}

    # following and publishing

    @contextmanager
    def writing(self) -> Iterator[ShardView]:
        """Hold the lock of writers; yield the shard as it is, with the journal recovered."""
        if self._writer == threading.get_ident():
            raise InvalidValue("this thread has a transaction open on the shard; one has to end before the next begins")
        with self._writing, self.files.locked(WRITE_LOCK):
            self._writer = threading.get_ident()
            try:
                view = self.refresh()
                if self.journal.recover(view.position):
                    view = self.refresh()
                yield view
            finally:
                self._writer = None

    def publish(self, manifest: Manifest) -> Manifest:
        """Publish a new version of the manifest. The lock of writers must be held."""
        return publish(self.files, manifest)

    def refresh(self) -> ShardView:
        """Follow manifest and journal; return what is committed.

        Raises:
            Damaged: a file is missing, or differs from its checksum.
        """
        with self._following:
            if not self._is_opened:
                self._recover_if_alone()
            self._view = self._followed(self._view)
            return self._view

    def _recover_if_alone(self) -> None:
        """Commit records that a crash left behind the journal's mark."""
        if self._writer is None and self.files.list("journal"):
            with self.files.locked(WRITE_LOCK, wait=False) as is_alone:
                if is_alone:
                    self.journal.recover(self._followed(ShardView()).position)
        self._is_opened = True

    def _followed(self, view: ShardView) -> ShardView:
        missing: tuple[int, str] | None = None
        while True:
            manifest = read_latest(self.files, view.manifest)
            try:
                return self._read_on(view, manifest)
            except FileNotFoundError as error:
                # A newer version was published meanwhile, and the files of this one were deleted.
                if missing == (manifest.version, str(error)):
                    raise Damaged(f"a file of the state is missing: {error}", hint=REMEDY) from error
                missing, view = (manifest.version, str(error)), ShardView()

    def _read_on(self, view: ShardView, manifest: Manifest) -> ShardView:
        files = {name: view.files.get(name) or self._opened(name) for name in manifest.names}
        memtable, position = view.memtable, view.position
        if not manifest.has_same_journal(view.manifest):
            memtable, position = self._from_start(manifest), manifest.position
        while (header := self.journal.header(position.number)) is not None:
            for placed in self.journal.read(position.number, position.offset, header.end):
                memtable = self._with(memtable, placed, manifest)
            position = JournalPosition(position.number, max(position.offset, header.end))
            if not header.is_full:
                break
            position = JournalPosition(position.number + 1)
        return ShardView(manifest, memtable, position, files)

    def _opened(self, name: str) -> RunFile:
        return RunFile(self.files.map(f"{RUNS}/{name}"), name)

    def _from_start(self, manifest: Manifest) -> Memtable:
        memtable = Memtable.at(manifest)
        for live in manifest.live:
            for placed in self.journal.read(live.number, live.start, live.end):
                memtable = self._with(memtable, placed, manifest, live.state_ids)
        if manifest.position > JournalPosition() and self.journal.header(manifest.position.number) is None:
            raise FileNotFoundError(f"file {manifest.position.number} of the journal")
        return memtable

    def _with(
        self, memtable: Memtable, placed: PlacedRecord, manifest: Manifest, only: Sequence[str] | None = None
    ) -> Memtable:
        at = JournalPosition(placed.number, placed.end)
        state_ids = [
            state_id
            for state_id in (placed.record.state_ids if only is None else only)
            if at > manifest.dropped.get(state_id, JournalPosition(0, 0))
        ]
        return memtable.begun(state_ids, placed.record.stamp, self.schemas).added(placed, state_ids, self.schemas)
