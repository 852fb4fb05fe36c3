"""The store of one process: state in memory, for tests, notebooks and the in-process runner."""

from __future__ import annotations

import heapq
import threading
from contextlib import contextmanager
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from umbel.errors import InvalidValue
from umbel.state.failpoints import reach
from umbel.state.port import (
    MAX_OWNER,
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
from umbel.state.progress import Progress, next_progress
from umbel.state.sortedmap import SortedMap

if TYPE_CHECKING:
    from urllib.parse import SplitResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Place = tuple[str, str]
"""Owner and table."""

Patch = SortedMap[bytes | None]
"""Values that differ from the committed ones; None where there is no entry."""

Saved = dict[Place, dict[bytes, bytes | None]]
"""Values before a write."""

_NO_ENTRIES: SortedMap[bytes] = SortedMap()
_NO_PATCH: Patch = SortedMap()


class _View:
    """Committed values under a patch: what a transaction is about to write, or what a snapshot saw before that."""

    __slots__ = ("_shard", "patches")

    def __init__(self, shard: _Shard) -> None:
        self._shard = shard
        self.patches: dict[Place, Patch] = {}

    def get(self, owner: str, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._shard.mutex:
            committed, patch = self._layers((owner, table))
            if not patch:
                return list(map(committed.get, keys))
            return [patch[key] if key in patch else committed.get(key) for key in keys]

    def scan(
        self, owner: str, table: str, ranges: Sequence[Range], *, limit: int | None = None, reverse: bool = False
    ) -> list[list[Entry]]:
        with self._shard.mutex:
            return [list(islice(self._entries((owner, table), low, high, reverse), limit)) for low, high in ranges]

    def _layers(self, place: Place) -> tuple[dict[bytes, bytes], dict[bytes, bytes | None]]:
        return self._shard.tables.get(place, _NO_ENTRIES).values, self.patches.get(place, _NO_PATCH).values

    def _entries(self, place: Place, low: bytes, high: bytes, reverse: bool) -> Iterator[Entry]:
        committed, patch = self._layers(place)
        sources: list[SortedMap[Any]] = [
            *([self._shard.tables[place]] if committed else []),
            *([self.patches[place]] if patch else []),
        ]
        for key in _merged([source.between(low, high, reverse) for source in sources], reverse):
            value = patch[key] if key in patch else committed.get(key)
            if value is not None:
                yield key, value

    def patch(self, place: Place) -> Patch:
        """Return the patch of a table, to be written to."""
        found = self.patches.get(place)
        if found is None:
            found = self.patches[place] = SortedMap()
        return found


def _merged(sources: Sequence[Iterator[bytes]], reverse: bool) -> Iterator[bytes]:
    """Return the keys of all sources in order, each once."""
    if len(sources) == 1:
        return sources[0]
    return (key for key, _ in groupby(heapq.merge(*sources, reverse=reverse)))


class _Writer(_View):
    """A transaction: a patch that becomes the state when it commits."""

    __slots__ = ("_owners", "restored")

    def __init__(self, shard: _Shard, owners: Sequence[str]) -> None:
        super().__init__(shard)
        self._owners = frozenset(owners)
        self.restored: Saved = {}

    def put(self, owner: str, table: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        self._check(owner, table, keys)
        patch = self.patch((owner, table))
        for key, value in zip(keys, values, strict=True):
            patch.set(key, value)
        reach("put")

    def delete(self, owner: str, table: str, keys: Sequence[bytes]) -> None:
        self._check(owner, table, keys)
        patch = self.patch((owner, table))
        for key in keys:
            patch.set(key, None)
        reach("put")

    def _check(self, owner: str, table: str, keys: Sequence[bytes]) -> None:
        if owner not in self._owners:
            raise InvalidValue(f"operator {owner} is not one of the transaction's owners")
        check_name("the table name", table, MAX_TABLE)
        check_keys(keys)

    def restore(self, saved: Saved) -> None:
        """Set values back to what they were."""
        for place, values in saved.items():
            patch = self.patch(place)
            self.restored.setdefault(place, {}).update(values)
            for key, value in values.items():
                patch.set(key, value)

    def before(self, place: Place) -> dict[bytes, bytes | None]:
        """Return what the patched keys of a table held when the transaction began to write."""
        committed = self._shard.tables.get(place, _NO_ENTRIES).values
        restored: Mapping[bytes, bytes | None] = self.restored.get(place, {})
        return {key: restored[key] if key in restored else committed.get(key) for key in self.patch(place).values}


class _Shard:
    """The committed state of one shard, and who is looking at it."""

    def __init__(self) -> None:
        self.tables: dict[Place, SortedMap[bytes]] = {}
        self.progress: dict[str, Progress] = {}
        self.undo: dict[str, list[tuple[int, Saved]]] = {}
        self.mutex = threading.Lock()
        self._writing = threading.Lock()
        self._writer: int | None = None
        self._snapshots: list[_View] = []

    @contextmanager
    def written(self) -> Iterator[None]:
        """Hold the right to write."""
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
        """Hold a view that later commits do not change."""
        view = _View(self)
        with self.mutex:
            self._snapshots.append(view)
        try:
            yield view
        finally:
            with self.mutex:
                self._snapshots.remove(view)

    def apply(self, place: Place, patch: Mapping[bytes, bytes | None]) -> None:
        """Make a patch the committed state; views that are open keep seeing the old one."""
        table = self.tables.setdefault(place, SortedMap())
        for view in self._snapshots:
            kept = view.patch(place)
            for key in patch:
                if key not in kept.values:
                    kept.set(key, table.values.get(key))
        for key, value in patch.items():
            if value is None:
                table.remove(key)
            else:
                table.set(key, value)


class MemoryStore:
    """A store whose state lives and dies with the process.

    Args:
        shards: how many shards there are.
    """

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._shards = [_Shard() for _ in range(shards)]

    def _shard(self, shard: int) -> _Shard:
        check_shard(shard, self.shards)
        return self._shards[shard]

    @contextmanager
    def transaction(
        self, shard: int, owners: Sequence[str], stamp: Stamp, *, undo: bool = True
    ) -> Iterator[Transaction]:
        """Open the one write transaction of `shard`; see `umbel.state.port.Store`."""
        state = self._shard(shard)
        with state.written():
            writer = _Writer(state, owners)
            reach("begun")
            kept = {owner: _rewind(state, writer, owner, stamp) for owner in owners}
            reach("undone")
            yield writer
            reach("committing")
            with state.mutex:
                _commit(state, writer, kept, stamp, undo)
            reach("committed")

    @contextmanager
    def snapshot(self, shard: int) -> Iterator[Reader]:
        """Open a read view of what is committed."""
        with self._shard(shard).seen() as view:
            yield view

    def stamp(self, shard: int, owner: str) -> Stamp | None:
        """Return the stamp of the last committed write of `owner`."""
        found = self._shard(shard).progress.get(owner)
        return found.stamp if found else None

    def drop(self, owner: str) -> None:
        """Forget everything of `owner` in all shards."""
        for state in self._shards:
            with state.written(), state.mutex:
                for place in [place for place in state.tables if place[0] == owner]:
                    state.apply(place, dict.fromkeys(state.tables[place].values))
                    del state.tables[place]
                state.progress.pop(owner, None)
                state.undo.pop(owner, None)

    def owners(self, shard: int) -> list[str]:
        """Return the operators that have state in `shard`, sorted."""
        return sorted(self._shard(shard).progress)

    def sizes(self) -> list[ShardSize]:
        """Return how much each shard holds; size is the length of all keys and values."""
        return [_size(number, state) for number, state in enumerate(self._shards)]

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def open_url(url: SplitResult, shards: int, settings: Mapping[str, str]) -> MemoryStore:
    """Open `memory://`: a new, empty store."""
    return MemoryStore(shards)


def _rewind(state: _Shard, writer: _Writer, owner: str, stamp: Stamp) -> list[tuple[int, Saved]]:
    """Take a former run of this step back; return the undo of the steps before it."""
    check_name("the operator id", owner, MAX_OWNER)
    progress = state.progress.get(owner)
    if progress is None:
        return []
    progress.admit(owner, stamp)
    if progress.stamp.batch < stamp.batch:
        return []
    steps = state.undo.get(owner, [])
    for _, saved in sorted((each for each in steps if each[0] >= stamp.step), key=itemgetter(0), reverse=True):
        writer.restore(saved)
    return [each for each in steps if each[0] < stamp.step]


def _commit(
    state: _Shard, writer: _Writer, kept: Mapping[str, list[tuple[int, Saved]]], stamp: Stamp, undo: bool
) -> None:
    for owner, steps in kept.items():
        places = [place for place in writer.patches if place[0] == owner]
        saved: Saved = {place: writer.before(place) for place in places} if undo else {}
        state.undo[owner] = [*steps, (stamp.step, saved)]
        state.progress[owner] = next_progress(state.progress.get(owner), stamp, undo)
    for place, patch in writer.patches.items():
        state.apply(place, patch.values)


def _size(number: int, state: _Shard) -> ShardSize:
    tables = [table.values for table in state.tables.values()]
    size = sum(len(key) + len(value) for values in tables for key, value in values.items())
    return ShardSize(number, sum(map(len, tables)), size)
