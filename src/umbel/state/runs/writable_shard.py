"""The common part of shards in files and in memory: snapshots and transactions."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

from umbel.errors import InvalidValue
from umbel.state.failpoints import reach
from umbel.state.port import ConcurrentWrite, Stamp
from umbel.state.runs.memtable import state_id_of
from umbel.state.runs.records import JournalRecord
from umbel.state.runs.rules import TableSchema
from umbel.state.runs.views import ShardSnapshot, ShardTransaction, ShardView, define

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

TRIES = 5
"""How often what other processes prevent is tried."""


class WritableShard(ABC):
    """A shard that is read by snapshots and written by transactions.

    A thread may have one transaction open, and an operator should have one writer at a time: of two the later one fails.

    Args:
        schemas: of its tables, by full name `state_id/table`; more may be defined later.
    """

    def __init__(self, schemas: Mapping[str, TableSchema] | None = None) -> None:
        self._declared = dict(schemas or {})
        self.schemas: dict[str, TableSchema] = dict(self._declared)
        self._writing = threading.Lock()
        self._is_locked = False
        self._open = set[int]()
        """The threads that have a transaction open."""
        _SHARDS.add(self)

    @abstractmethod
    def refresh(self) -> ShardView:
        """Return what is committed."""

    @abstractmethod
    def _locked(self) -> AbstractContextManager[ShardView]:
        """Hold the lock of writers of other processes; yield the shard, ready to be written."""

    @abstractmethod
    def _commit(self, view: ShardView, record: JournalRecord) -> None:
        """Commit the writes of a transaction to the shard as it is.

        Raises:
            ConcurrentWrite: it was written since it was read.
        """

    @abstractmethod
    def _prepare(self, record: JournalRecord) -> None:
        """Do what can be done for a commit without the lock."""

    @abstractmethod
    def drop(self, state_id: str) -> None:
        """Delete all state of a state id."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes of the state, in files or in memory."""

    def define(self, table: str, schema: TableSchema) -> None:
        """Define a table by its full name.

        Raises:
            Terminal: it is known with other columns.
        """
        define(self.schemas, table, schema)

    def snapshot(self) -> ShardSnapshot:
        """Return a read view of the committed state."""
        return ShardSnapshot(self._current(), self.schemas)

    def _current(self) -> ShardView:
        """Return what a snapshot shows."""
        return self.refresh()

    def stamp(self, state_id: str) -> Stamp | None:
        """Return the stamp of a state id's last committed write, None without one."""
        return self.refresh().memtable.stamps.get(state_id)

    def state_ids(self) -> list[str]:
        """Return the state ids with state here, sorted."""
        return sorted(self.refresh().memtable.stamps)

    @contextmanager
    def transaction(self, state_ids: Sequence[str], stamp: Stamp, *, undo: bool = True) -> Iterator[ShardTransaction]:
        """Open a write transaction; committed when the block ends, dropped when it raises.

        Transactions on other state ids may be open at the same time; the lock of writers is held to begin and to commit.

        Args:
            state_ids: the operators whose state is written; each gets the stamp.
            stamp: the batch. Earlier writes of the same step, or of a later step of the same batch, are replaced.
            undo: False if the batch will not be run again.

        Raises:
            ConcurrentWrite: a state id was written or dropped meanwhile.
            Fenced: the stamp of a state id has a higher epoch.
            StaleBatch: the stamp of a state id has a later batch, or this batch was written without undo.
            Transient: the disk is full or fails; nothing was written.
        """
        with self._alone_in_thread():
            with self.writing() as view:
                reach("begun")
                begun = self._begun(view, state_ids, stamp)
            transaction = ShardTransaction(begun, self.schemas, state_ids)
            yield transaction
            record = transaction.record(stamp, state_ids, undo=undo)
            self._prepare(record)
            reach("committing")
            self._commit_after(view, begun, record)
        reach("committed")

    def _commit_after(self, view: ShardView, begun: ShardView, record: JournalRecord) -> None:
        """Commit a transaction that began with a view.

        Other state ids may have been written since.
        """
        tries = TRIES
        while tries:
            tries -= 1
            with self.writing() as now:
                if now is not view:
                    self._must_be_unchanged(record.state_ids, view, now)
                    begun = self._begun(now, record.state_ids, record.stamp)
                try:
                    self._commit(begun, record)
                    tries = 0
                except ConcurrentWrite:  # in a bucket, by a writer of other state ids
                    if not tries:
                        raise

    def _begun(self, view: ShardView, state_ids: Sequence[str], stamp: Stamp) -> ShardView:
        """Return what a transaction reads: replaced steps gone, earlier batches final."""
        view.memtable.must_accept(state_ids, stamp)
        return ShardView(view.manifest, view.memtable.begun(state_ids, stamp, self.schemas), view.position, view.files)

    def _must_be_unchanged(self, state_ids: Sequence[str], view: ShardView, now: ShardView) -> None:
        for state_id in state_ids:
            if now.memtable.stamps.get(state_id) != view.memtable.stamps.get(state_id):
                raise ConcurrentWrite(
                    f"another process has written the state of operator {state_id} while this transaction was open"
                )

    @contextmanager
    def _alone_in_thread(self) -> Iterator[None]:
        """Refuse a second transaction of this thread, which would not see the first one's writes."""
        thread = threading.get_ident()
        if thread in self._open:
            raise InvalidValue("this thread has a transaction open on the shard; one has to end before the next begins")
        self._open.add(thread)
        try:
            yield
        finally:
            self._open.discard(thread)

    @contextmanager
    def writing(self) -> Iterator[ShardView]:
        """Hold the lock of writers; yield the shard as it is."""
        with self._writing, self._locked() as view:
            self._is_locked = True
            try:
                yield view
            finally:
                self._is_locked = False

    def _forget(self, state_id: str) -> None:
        """Forget the schemas of a state id's tables, but those declared.

        Open views still read them.
        """
        schemas = self.schemas.copy()  # at once: other threads define tables meanwhile
        others = {table: each for table, each in schemas.items() if state_id_of(table) != state_id}
        self.schemas = {**others, **self._declared}

    def _unlock(self) -> None:
        """Make new locks in a fork: threads of the parent may hold these."""
        self._writing, self._is_locked = threading.Lock(), False
        self._open.clear()


_SHARDS: WeakSet[WritableShard] = WeakSet()


def _after_fork() -> None:
    for shard in list(_SHARDS):
        shard._unlock()


os.register_at_fork(after_in_child=_after_fork)
