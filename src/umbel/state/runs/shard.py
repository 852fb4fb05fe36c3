"""Shards: keyed state in tables, as a journal, blocks in memory and sorted runs.

Transactions on different operators run side by side and are committed one at a time, under a lock; any number of processes
read. All follow the manifest and the journal from where they last read, so a shard may be written by one process now and by
another one next.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from umbel.errors import Damaged, Transient, UmbelError
from umbel.state.port import ConcurrentWrite, Fenced, JournalEnd
from umbel.state.runs.journal import JOURNAL_BYTES, journal_name
from umbel.state.runs.manifest import JournalPosition, Manifest, publish, read_latest
from umbel.state.runs.memtable import Memtable, state_id_of
from umbel.state.runs.records import JournalRecord, PlacedRecord
from umbel.state.runs.rules import TableSchema, schema_of
from umbel.state.runs.run import REMEDY, RunFile, damaged
from umbel.state.runs.shard_names import known_mark
from umbel.state.runs.views import ShardView
from umbel.state.runs.writable_shard import TRIES, WritableShard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from umbel.state.runs.files import ShardFiles

LOOKS, PAUSE = 5, 0.1
"""Times that a journal that ends too early is looked at, and seconds between them: its writer may be recovering it."""
RUNS = "runs"
WRITE_LOCK = "write.lock"
STALE = 30.0
"""Seconds after which a view that nobody could refresh is not shown any more, but the error of the storage raised."""


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """Sizes of a shard's parts.

    Args:
        journal_bytes: size from which on a file of the journal is followed by the next one.
        flush_bytes: bytes of final rows in memory from which on they are flushed into runs.
        part_rows: rows of one file of a run; a fourth of them is merged at once.
        fan: runs of a tier that are merged into one of the next.
    """

    journal_bytes: int = JOURNAL_BYTES
    flush_bytes: int = 64 << 20
    part_rows: int = 1 << 20
    fan: int = 6


class _DamagedCopies:
    """The copies of runs on this machine that were found damaged, and deleted.

    The storage has the runs.

    Args:
        files: of the shard.
    """

    def __init__(self, files: ShardFiles) -> None:
        self._files = files
        self.names = set[str]()

    def error(self, name: str, reason: str) -> Damaged:
        """Return the error of a damaged run.

        Its copy, if it is one, is not read again.
        """
        if not self._files.has_locks:
            self._forget(name)
        return damaged(name, reason)

    def find_cut(self, view: ShardView) -> bool:
        """Return whether copies that a view has mapped are cut.

        Reading them would end the process.
        """
        if self._files.has_locks:  # no copies
            return False
        cut = [name for name, run in view.files.items() if self._files.is_cut(f"{RUNS}/{name}", run.size)]
        for name in cut:
            self._forget(name)
        return bool(cut)

    def _forget(self, name: str) -> None:
        self._files.forget(f"{RUNS}/{name}")
        self.names.add(name)


class _ShardMissingError(Exception):
    """Raised if the files of a shard that must exist were not found."""


class Shard(WritableShard):
    """A shard in files. May be used by several threads and processes.

    Args:
        files: where it is.
        schemas: of its tables, by full name `state_id/table`; more may be defined later. Tables that replace their entries
            are also known from what is stored.
        options: sizes of its parts.
        is_made: returns True once the shard must exist.
    """

    def __init__(
        self,
        files: ShardFiles,
        schemas: Mapping[str, TableSchema] | None = None,
        options: ShardOptions | None = None,
        is_made: Callable[[], bool] = bool,
    ) -> None:
        super().__init__(schemas)
        self.files, self.options, self._is_made = files, options or ShardOptions(), is_made
        self.journal = files.journal(self.options.journal_bytes)
        self._view = ShardView()
        self._following = threading.Lock()
        self._is_opened = False
        self.is_followed = False
        """True if a thread refreshes the view all the time: snapshots then show its latest one."""
        self._followed_at = -math.inf
        self._unseen: UmbelError | None = None
        """The error of the last look, None if it succeeded."""
        self.least = JournalEnd()
        """How far it was written at least; a shard that ends before is damaged."""
        self.noted: Callable[[], JournalEnd] = lambda: self.least
        """Returns the same as it is noted by now: a rebuild begins again."""
        self._looks = LOOKS
        self._damaged = _DamagedCopies(files)

    def _current(self) -> ShardView:
        if not self.is_followed:
            return self.refresh()
        if time.monotonic() - self._followed_at < STALE:
            return self._view
        if self._followed_at == -math.inf:
            return self.refresh()
        if self._unseen is not None:  # looked for all the time: nobody has to wait for the same
            raise self._unseen
        if self._following.locked():  # by the thread that follows, which waits for the storage
            report = f"the state {self.files} was not seen for {STALE:.0f} seconds"
            raise Transient(report, hint="try again; is the storage reachable?")
        return self.refresh()

    def create(self) -> None:
        """Create the journal, unless there is one."""
        with self.files.locked(WRITE_LOCK):
            self.journal.create()
            if not self.files.has_locks and not read_latest(self.files).version:  # nothing else tells of an empty shard
                with suppress(Fenced):
                    publish(self.files, Manifest())

    def _prepare(self, record: JournalRecord) -> None:
        mark = b"" if self.files.has_locks else known_mark(self.files.store)
        record.pack(mark=mark)  # before the lock: a large one takes a while

    def _commit(self, view: ShardView, record: JournalRecord) -> None:
        placed = self.journal.append(view.position, record)
        if not self.files.has_locks and read_latest(self.files, view.manifest).position.number > placed.number:
            # Later records were there and have been deleted as part of runs: nobody will read this one.
            raise ConcurrentWrite(f"another process has written to {self.files} while this transaction was open")
        memtable = view.memtable.added(placed, record.state_ids, self.schemas)
        with self._following:
            position = JournalPosition(placed.number, placed.end)
            self._view = ShardView(view.manifest, memtable, position, view.files)

    def drop(self, state_id: str) -> None:
        """Delete all state of a state id."""
        for left in reversed(range(TRIES)):
            try:
                self._drop(state_id)
            except Fenced:
                if not left:
                    raise
            else:
                return

    def _drop(self, state_id: str) -> None:
        with self.writing() as view:
            self._forget(state_id)
            if state_id not in view.memtable.stamps:
                return
            # Twice: with the version before the last one, should that be lost, the state would be there again.
            self.publish(self.publish(view.manifest.without(state_id, view.position)))

    def check(self) -> int:
        """Verify all files; return the number of rows.

        Raises:
            Damaged: a file differs from its checksums.
        """
        with self._following:
            self._view = ShardView()
        view = self.refresh()
        blocks = [block for table in view.memtable.tables for block in view.memtable.sources(table)]
        return sum(run.check() for run in view.files.values()) + sum(block.rows for block in blocks)

    def memtable_size(self) -> int:
        """Return the bytes of final rows in memory, as of the last transaction or view."""
        return self._view.memtable.size

    def is_due(self, flush_bytes: int) -> bool:
        """Return True if the rows in memory of the last view are to be flushed."""
        view = self._view
        is_long = self.journal.is_long(view.manifest.position, view.position)
        return is_long or (bool(view.memtable.size) and view.memtable.size >= flush_bytes)

    def size(self) -> int:
        """Return the bytes of all files."""
        return self.journal.size() + sum(run.size for run in self.refresh().files.values())

    def _unlock(self) -> None:
        super()._unlock()
        self._following = threading.Lock()

    # following and publishing

    @contextmanager
    def _locked(self) -> Iterator[ShardView]:
        if not self._is_opened:
            self.refresh()  # a missing shard is an error before the lock makes its folder
        with self.files.locked(WRITE_LOCK):
            view = self.refresh()
            yield self.refresh() if self.journal.recover(view.position) else view

    def publish(self, manifest: Manifest) -> Manifest:
        """Publish a new version of the manifest. The lock of writers must be held."""
        return publish(self.files, manifest)

    def refresh(self) -> ShardView:
        """Follow manifest and journal; return what is committed.

        Raises:
            Damaged: a file is missing, or differs from its checksum.
        """
        with self._following, self._noted():
            if not self._is_opened:
                self._view = self._recovered(self._view)
            if self._damaged.find_cut(self._view):
                self._followed_at = -math.inf
            replaced = set(self._damaged.names)
            self._view = self._reached(self._followed(ShardView() if replaced else self._view))
            self._damaged.names -= replaced
            self._followed_at = time.monotonic()
            return self._view

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Note the error of a look, or that there is none."""
        try:
            yield
        except UmbelError as error:
            self._unseen = error
            raise
        self._unseen = None

    @property
    def end(self) -> JournalEnd:
        """The end of the written state, as of the last transaction or view."""
        return _end(self._view)

    def _reached(self, view: ShardView) -> ShardView:
        """Return the view, or a later one, that has all of what must be there."""
        while lacks(self.least, _end(view)):
            if not self._looks:
                self.least = self.noted()
                if not lacks(self.least, _end(view)):
                    break
                report = shortened(self.least, _end(view))
                raise Damaged(f"the state {self.files} is damaged: {report}", hint=REMEDY)
            self._looks -= 1
            time.sleep(PAUSE)
            view = self._followed(self._recovered(ShardView()))
        return view

    def _recovered(self, view: ShardView) -> ShardView:
        """Commit records that a crash left behind the journal's mark, if no other process does.

        Returns:
            A view that follows the given one: what is read here is not read once more.
        """
        if not self._is_locked and self.files.list("journal"):
            with self.files.locked(WRITE_LOCK, wait=False) as is_alone:
                if is_alone:
                    view = self._followed(view)
                    self.journal.recover(view.position)
        self._is_opened = True
        return view

    def _followed(self, view: ShardView) -> ShardView:
        missing: tuple[int, str] | None = None
        is_missing = False
        while True:
            manifest = read_latest(self.files, view.manifest)
            try:
                return self._read_on(view, manifest)
            except _ShardMissingError:
                if is_missing:
                    raise Damaged(f"the state {self.files} is missing", hint=REMEDY) from None
                is_missing = True  # or it was made between the two looks, at its files and at the store's description
            except FileNotFoundError as error:
                # A newer version was published meanwhile, and the files of this one were deleted.
                if missing == (manifest.version, str(error)):
                    lost = "/".join(Path(error.filename).parts[-2:]) if error.filename else error
                    raise Damaged(f"the state {self.files} lacks {lost}", hint=REMEDY) from error
                missing, view = (manifest.version, str(error)), ShardView()

    def _read_on(self, view: ShardView, manifest: Manifest) -> ShardView:
        files, memtable, position = view.files, view.memtable, view.position
        if not manifest.version and not self.files.has_locks and self._is_made():
            raise _ShardMissingError
        if manifest is not view.manifest:
            files = {name: view.files.get(name) or self._opened(name) for name in manifest.names}
            for name in view.files.keys() - files.keys():  # it may have rows whose bytes have to go
                self.files.forget(f"{RUNS}/{name}")
            if not manifest.has_same_journal(view.manifest):
                memtable, position = self._from_start(manifest), manifest.position
        try:
            records, end = self.journal.since(position)
        except FileNotFoundError:
            if manifest.version or position != JournalPosition():
                raise
            if self._is_made():
                raise _ShardMissingError from None
            records, end = [], position
        if manifest is view.manifest and not records and end == position:
            return view
        for placed in records:
            memtable = self._with(memtable, placed, manifest)
        return ShardView(manifest, memtable, end, files)

    def _opened(self, name: str) -> RunFile:
        try:
            run = RunFile(self.files.map(f"{RUNS}/{name}"), name, self._damaged.error)
        except Damaged:
            if self.files.has_locks:
                raise
            run = RunFile(self.files.map(f"{RUNS}/{name}"), name, self._damaged.error)
        if run.order is not None:
            self._learn(run.table, schema_of(run.columns, run.order))
        return run

    def _learn(self, table: str, stored: TableSchema) -> None:
        """Take over the schema of stored rows.

        A state id may have been dropped and filled again with other columns.
        """
        known = self.schemas.setdefault(table, stored)
        if table not in self._declared and known.stored != stored.stored:
            self.schemas = {**self.schemas, table: stored}  # open views still read the former ones

    def _from_start(self, manifest: Manifest) -> Memtable:
        memtable = Memtable.at(manifest)
        for live in manifest.live:
            for placed in self.journal.read(live.number, live.start, live.end):
                memtable = self._with(memtable, placed, manifest, live.state_ids)
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
        for table, order in placed.record.orders.items():
            if order is not None and state_id_of(table) in state_ids:
                self._learn(table, schema_of(placed.record.frames[table].schema, order))
        return memtable.begun(state_ids, placed.record.stamp, self.schemas).added(placed, state_ids, self.schemas)


def _end(view: ShardView) -> JournalEnd:
    return JournalEnd(view.position.number, view.position.offset, view.manifest.version)


def lacks(least: JournalEnd, end: JournalEnd) -> bool:
    """Return whether a shard has lost what was written last.

    The latest manifest may be lost: the one before and the journal say the same.

    Args:
        least: how far it was written at least.
        end: how far it is there.
    """
    return end[:2] < least[:2] or end.version < least.version - 1


def shortened(least: JournalEnd, end: JournalEnd) -> str:
    """Return what a shard lacks, for messages."""
    if end[:2] < least[:2]:
        at = f"at byte {end.offset} of {journal_name(end.number)}"
        return f"its journal ends {at}, and finished batches wrote up to byte {least.offset} of {journal_name(least.number)}"
    return f"its manifests of version {least.version - 1} and later are missing"
