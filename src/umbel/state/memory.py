"""The in-memory store of one process, for tests, notebooks and the in-process runner."""

from __future__ import annotations

import heapq
import threading
from contextlib import contextmanager
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from sortedcontainers import SortedDict

from umbel.errors import InvalidValue
from umbel.state.failpoints import reach
from umbel.state.port import (
    MAX_STATE_ID,
    MAX_TABLE,
    Entry,
    Range,
    Reader,
    ShardSize,
    Stamp,
    Transaction,
    check_keys,
    check_name,
    check_shard,
)
from umbel.state.progress import StampProgress, next_progress

if TYPE_CHECKING:
    from urllib.parse import SplitResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TableKey = tuple[str, str]
"""State id and table."""

Patch: TypeAlias = SortedDict
"""Values that differ from the committed ones; None for a deleted or missing entry."""

Saved = dict[TableKey, dict[bytes, bytes | None]]
"""Values before a write."""

_EMPTY = SortedDict()


class _View:
    """Committed values under a patch.

    The patch is the uncommitted writes of a transaction, or the earlier values seen by a snapshot.
    """

    __slots__ = ("_shard", "patches")

    def __init__(self, shard: _Shard) -> None:
        self._shard = shard
        self.patches: dict[TableKey, Patch] = {}

    def get(self, state_id: str, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._shard.mutex:
            committed, patch = self._layers((state_id, table))
            if not patch:
                return list(map(committed.get, keys))
            return [patch[key] if key in patch else committed.get(key) for key in keys]

    def scan(
        self, state_id: str, table: str, ranges: Sequence[Range], *, limit: int | None = None, reverse: bool = False
    ) -> list[list[Entry]]:
        with self._shard.mutex:
            return [list(islice(self._entries((state_id, table), low, high, reverse), limit)) for low, high in ranges]

    def _layers(self, table_key: TableKey) -> tuple[SortedDict, Patch]:
        return self._shard.tables.get(table_key, _EMPTY), self.patches.get(table_key, _EMPTY)

    def _entries(self, table_key: TableKey, low: bytes, high: bytes, reverse: bool) -> Iterator[Entry]:
        committed, patch = self._layers(table_key)
        sources = [each.irange(low, high, (True, False), reverse) for each in (committed, patch) if each]
        for key in _merged(sources, reverse):
            value = patch[key] if key in patch else committed.get(key)
            if value is not None:
                yield key, value

    def patch(self, table_key: TableKey) -> Patch:
        """Return the patch of a table for writing; created on first use."""
        found = self.patches.get(table_key)
        if found is None:
            found = self.patches[table_key] = SortedDict()
        return found


def _merged(sources: Sequence[Iterator[bytes]], reverse: bool) -> Iterator[bytes]:
    """Merge the keys of all sources in order, without duplicates."""
    if len(sources) == 1:
        return sources[0]
    return (key for key, _ in groupby(heapq.merge(*sources, reverse=reverse)))


class _Writer(_View):
    """A transaction: a patch that is applied to the state on commit."""

    __slots__ = ("_state_ids", "restored")

    def __init__(self, shard: _Shard, state_ids: Sequence[str]) -> None:
        super().__init__(shard)
        self._state_ids = frozenset(state_ids)
        self.restored: Saved = {}

    def put(self, state_id: str, table: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        self._check(state_id, table, keys)
        self.patch((state_id, table)).update(zip(keys, values, strict=True))
        reach("put")

    def delete(self, state_id: str, table: str, keys: Sequence[bytes]) -> None:
        self._check(state_id, table, keys)
        self.patch((state_id, table)).update(dict.fromkeys(keys))
        reach("put")

    def _check(self, state_id: str, table: str, keys: Sequence[bytes]) -> None:
        if state_id not in self._state_ids:
            raise InvalidValue(f"operator {state_id} is not one of the transaction's owners")
        check_name("the table name", table, MAX_TABLE)
        check_keys(keys)

    def restore(self, saved: Saved) -> None:
        """Set values back to the saved ones."""
        for table_key, values in saved.items():
            self.restored.setdefault(table_key, {}).update(values)
            self.patch(table_key).update(values)

    def before(self, table_key: TableKey) -> dict[bytes, bytes | None]:
        """Return the values of a table's patched keys as of the transaction's first write."""
        committed = self._shard.tables.get(table_key, _EMPTY)
        restored: Mapping[bytes, bytes | None] = self.restored.get(table_key, {})
        return {key: restored[key] if key in restored else committed.get(key) for key in self.patch(table_key)}


class _Shard:
    """The committed state of one shard and its open snapshots."""

    def __init__(self) -> None:
        self.tables: dict[TableKey, SortedDict] = {}
        self.progress: dict[str, StampProgress] = {}
        self.undo: dict[str, list[tuple[int, Saved]]] = {}
        self.mutex = threading.Lock()
        self._writing = threading.Lock()
        self._writer: int | None = None
        self._snapshots: list[_View] = []

    @contextmanager
    def written(self) -> Iterator[None]:
        """Lock the shard for writing."""
        if self._writer == threading.get_ident():
            raise InvalidValue("this thread has a transaction open on the shard; one has to end before the next begins")
        with self._writing:
            self._writer = threading.get_ident()
            try:
                yield
            finally:
                self._writer = None

    @contextmanager
    def seen(self) -> Iterator[_View]:
        """Open a view that later commits do not change."""
        view = _View(self)
        with self.mutex:
            self._snapshots.append(view)
        try:
            yield view
        finally:
            with self.mutex:
                self._snapshots.remove(view)

    def apply(self, table_key: TableKey, patch: Mapping[bytes, bytes | None]) -> None:
        """Apply a patch to the committed state; open views still see the old values."""
        table = self.tables.setdefault(table_key, SortedDict())
        for view in self._snapshots:
            retained = view.patch(table_key)
            retained.update({key: table.get(key) for key in patch if key not in retained})
        for key, value in patch.items():
            if value is None:
                table.pop(key, None)
        table.update({key: value for key, value in patch.items() if value is not None})


class MemoryStore:
    """A store whose state is lost when the process ends.

    Args:
        shards: number of shards.
    """

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._shards = [_Shard() for _ in range(shards)]

    def _shard(self, shard: int) -> _Shard:
        check_shard(shard, self.shards)
        return self._shards[shard]

    @contextmanager
    def transaction(
        self, shard: int, state_ids: Sequence[str], stamp: Stamp, *, undo: bool = True
    ) -> Iterator[Transaction]:
        """Open the one write transaction of `shard`; see `umbel.state.port.Store`."""
        state = self._shard(shard)
        with state.written():
            writer = _Writer(state, state_ids)
            reach("begun")
            retained = {state_id: _rewind(state, writer, state_id, stamp) for state_id in state_ids}
            reach("undone")
            yield writer
            reach("committing")
            with state.mutex:
                _commit(state, writer, retained, stamp, undo)
            reach("committed")

    @contextmanager
    def snapshot(self, shard: int) -> Iterator[Reader]:
        """Open a read view of the committed state."""
        with self._shard(shard).seen() as view:
            yield view

    def stamp(self, shard: int, state_id: str) -> Stamp | None:
        """Return the stamp of the last committed write of `state_id`."""
        found = self._shard(shard).progress.get(state_id)
        return found.stamp if found else None

    def drop(self, state_id: str) -> None:
        """Delete all state of `state_id` in all shards."""
        for state in self._shards:
            with state.written(), state.mutex:
                for table_key in [table_key for table_key in state.tables if table_key[0] == state_id]:
                    state.apply(table_key, dict.fromkeys(state.tables[table_key]))
                    del state.tables[table_key]
                state.progress.pop(state_id, None)
                state.undo.pop(state_id, None)

    def state_ids(self, shard: int) -> list[str]:
        """Return the state ids with state in `shard`, sorted."""
        return sorted(self._shard(shard).progress)

    def sizes(self) -> list[ShardSize]:
        """Return each shard's number of entries and the bytes of its keys and values."""
        return [_size(number, state) for number, state in enumerate(self._shards)]

    def close(self) -> None:
        """Do nothing: there are no files or connections to release."""


def open_url(url: SplitResult, shards: int, settings: Mapping[str, str]) -> MemoryStore:
    """Open `memory://`: a new, empty store."""
    return MemoryStore(shards)


def _rewind(state: _Shard, writer: _Writer, state_id: str, stamp: Stamp) -> list[tuple[int, Saved]]:
    """Roll back an earlier run of this step; return the undo of earlier steps."""
    check_name("the operator id", state_id, MAX_STATE_ID)
    progress = state.progress.get(state_id)
    if progress is None:
        return []
    progress.admit(state_id, stamp)
    if progress.stamp.batch < stamp.batch:
        return []
    steps = state.undo.get(state_id, [])
    for _, saved in sorted((each for each in steps if each[0] >= stamp.step), key=itemgetter(0), reverse=True):
        writer.restore(saved)
    return [each for each in steps if each[0] < stamp.step]


def _commit(
    state: _Shard, writer: _Writer, retained: Mapping[str, list[tuple[int, Saved]]], stamp: Stamp, undo: bool
) -> None:
    for state_id, steps in retained.items():
        positions = [table_key for table_key in writer.patches if table_key[0] == state_id]
        saved: Saved = {table_key: writer.before(table_key) for table_key in positions} if undo else {}
        state.undo[state_id] = [*steps, (stamp.step, saved)]
        state.progress[state_id] = next_progress(state.progress.get(state_id), stamp, undo)
    for table_key, patch in writer.patches.items():
        state.apply(table_key, patch)


def _size(number: int, state: _Shard) -> ShardSize:
    size = sum(len(key) + len(value) for table in state.tables.values() for key, value in table.items())
    return ShardSize(number, sum(map(len, state.tables.values())), size)
