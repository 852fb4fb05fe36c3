"""Read and write one shard in LMDB, with undo.

d state_id 0 table 0 key         value
u state_id 0 step serial         old values of one write: [table, keys, values]
s state_id                       epoch, batch, step, highest step without undo
e                                nothing: a fence, so that a read past the last entry of a table finds no undo

Each value is followed by a checksum of its key and itself, which is verified when it is read. Where a read transaction does not
find a key, it verifies the neighbours of the key: if the key itself had been damaged, its entry would be one of them. A write
transaction does not: most keys it looks up are new, and verifying their neighbours would more than double the cost of writing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import lmdb
import msgspec

from umbel.errors import InvalidValue
from umbel.state.failpoints import reach
from umbel.state.lmdb_checks import SOUND, SUM_BYTES, Checks, check, check_absent, check_around, sealed
from umbel.state.port import MAX_KEY, MAX_STATE_ID, MAX_TABLE, Entry, Range, Stamp, check_keys, check_name
from umbel.state.progress import StampProgress, next_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from umbel.state.environments import Cursor, Tx

_DATA, _UNDO, _STAMP = b"d", b"u", b"s"
_PROGRESS, _SERIAL, _STEP = struct.Struct(">qqqq"), struct.Struct(">IQ"), struct.Struct(">I")
_UNDO_SIZE = 1 << 20
_Old = tuple[Sequence[bytes], Sequence[bytes | None]]
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[str, list[bytes], list[bytes | None]]).decode


def _of_state(space: bytes, state_id: str) -> bytes:
    return space + state_id.encode() + b"\0"


@lru_cache(maxsize=4096)
def _table(state_id: str, table: str) -> bytes:
    return _DATA + state_id.encode() + b"\0" + table.encode() + b"\0"


def _end(prefix: bytes) -> bytes:
    """Return the bound above all keys with a prefix that ends in a zero byte."""
    return prefix[:-1] + b"\x01"


def _bound(prefix: bytes, key: bytes) -> bytes:
    """Return the position of `key`, of any length, among the keys of a table.

    Entries outside the table differ within the prefix, so any bound in the table is on the right side of them.
    """
    return prefix + (key if len(key) <= MAX_KEY else key[:MAX_KEY] + b"\0")


class LmdbReader:
    """A read transaction of one shard."""

    __slots__ = ("_checks", "_tx")

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._checks: Checks | None = None

    def get(self, state_id: str, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None if missing; verifies the neighbours of missing keys."""
        prefix = _table(state_id, table)
        found = self._stored(prefix, keys)
        if None in found:
            absent = (key for key, value in zip(keys, found, strict=True) if value is None)
            check_absent(self._tx, (_bound(prefix, key) for key in absent), self._checker())
        return [value and value[:-SUM_BYTES] for value in found]

    def _stored(self, prefix: bytes, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the stored values of keys, with verified checksums."""
        positions = [prefix + key for key in keys]
        try:
            found = list(map(self._tx.get, positions))
        except lmdb.BadValsizeError:
            found = [
                self._tx.get(position) if len(key) <= MAX_KEY else None
                for position, key in zip(positions, keys, strict=True)
            ]
        crc32 = zlib.crc32
        for position, value in zip(positions, found, strict=True):
            if value is not None and crc32(value, crc32(position)) != SOUND:
                check(position, value)  # raises
        return found

    def scan(
        self, state_id: str, table: str, ranges: Sequence[Range], *, limit: int | None = None, reverse: bool = False
    ) -> list[list[Entry]]:
        """Return the entries of each range in key order; see `umbel.state.port.Reader`."""
        prefix = _table(state_id, table)
        walk = _down if reverse else _up
        with self._tx.cursor() as cursor:
            return [walk(cursor, prefix, low, high, limit, self._checker()) for low, high in ranges]

    def _checker(self) -> Checks:
        if self._checks is None:
            self._checks = Checks()
        return self._checks


class NothingThere:
    """A shard without any writes."""

    def get(self, state_id: str, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return None for each key."""
        return [None] * len(keys)

    def scan(
        self, state_id: str, table: str, ranges: Sequence[Range], *, limit: int | None = None, reverse: bool = False
    ) -> list[list[Entry]]:
        """Return no entries for each range."""
        return [[] for _ in ranges]


def _up(cursor: Cursor, prefix: bytes, low: bytes, high: bytes, limit: int | None, checks: Checks) -> list[Entry]:
    start, stop = _bound(prefix, low), _bound(prefix, high)
    is_there = cursor.set_range(start)
    check_around(cursor, start, is_there, checks)
    if not (is_there and cursor.set_range(start)):
        return []
    return _walked(cursor, cursor.next, lambda key: key < stop, len(prefix), limit, checks)


def _down(cursor: Cursor, prefix: bytes, low: bytes, high: bytes, limit: int | None, checks: Checks) -> list[Entry]:
    start = _bound(prefix, low)
    stop = _bound(prefix, high)
    if not check_around(cursor, stop, cursor.set_range(stop), checks):
        return []
    return _walked(cursor, cursor.prev, lambda key: key >= start, len(prefix), limit, checks)


def _walked(
    cursor: Cursor,
    advance: Callable[[], bool],
    inside: Callable[[bytes], bool],
    skip: int,
    limit: int | None,
    checks: Checks,
) -> list[Entry]:
    """Collect entries from the cursor's position on."""
    found: list[Entry] = []
    while len(found) != limit and (key := cursor.key()):
        if not inside(key):
            checks.entry(cursor)
            break
        value = cursor.value()
        check(key, value)
        found.append((key[skip:], value[:-SUM_BYTES]))
        if not advance():
            break
    return found


class LmdbWriter(LmdbReader):
    """The write transaction of one shard."""

    __slots__ = ("_cursor", "_read", "_saved", "_serial", "_state_ids", "_step")

    def __init__(self, tx: Tx, state_ids: Sequence[str], step: int | None) -> None:
        super().__init__(tx)
        self._state_ids = frozenset(state_ids)
        self._cursor = tx.cursor()
        self._step = step
        self._serial = 0
        self._saved: dict[bytes, set[bytes] | Sequence[bytes]] = {}
        self._read: dict[bytes, tuple[list[bytes], list[bytes | None]]] = {}

    def get(self, state_id: str, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return values; cache those of the last call for the next write."""
        prefix = _table(state_id, table)
        found = self._stored(prefix, keys)
        if self._step is not None and state_id in self._state_ids:
            self._read[prefix] = (list(keys), found)
        return [value and value[:-SUM_BYTES] for value in found]

    def put(self, state_id: str, table: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set the value of each key, saving its old value in the undo."""
        prefix = self._prefix(state_id, table, keys)
        if len(keys) != len(values):
            raise InvalidValue(f"{len(keys)} keys were given for {len(values)} values")
        positions = [prefix + key for key in keys]
        values = list(map(sealed, positions, values))
        if self._step is None:
            self._cursor.putmulti(zip(positions, values, strict=True))
            reach("put")
            return
        old = self._remembered(prefix, keys)
        if old is None:
            old = list(map(self._cursor.replace, positions, values))
        else:
            self._cursor.putmulti(zip(positions, values, strict=True))
        reach("put")
        self._save(state_id, table, prefix, keys, old)

    def delete(self, state_id: str, table: str, keys: Sequence[bytes]) -> None:
        """Delete each key, saving its old value in the undo."""
        prefix = self._prefix(state_id, table, keys)
        old = list(map(self._cursor.pop, [prefix + key for key in keys]))
        reach("put")
        if self._step is not None:
            self._save(state_id, table, prefix, keys, old)

    def _remembered(self, prefix: bytes, keys: Sequence[bytes]) -> list[bytes | None] | None:
        """Return the cached old values of keys, None if any was not read last.

        Keys written since that get may have others; those are saved already, and their old values are not used.
        """
        read, found = self._read.pop(prefix, ([], []))
        if len(read) < len(keys):
            return None
        if read == keys:
            return found
        values = dict(zip(read, found, strict=True))
        return [values[key] for key in keys] if all(key in values for key in keys) else None

    def _prefix(self, state_id: str, table: str, keys: Sequence[bytes]) -> bytes:
        if state_id not in self._state_ids:
            raise InvalidValue(f"operator {state_id} is not one of the transaction's owners")
        check_name("the table name", table, MAX_TABLE)
        check_keys(keys)
        return _table(state_id, table)

    def _save(
        self, state_id: str, table: str, prefix: bytes, keys: Sequence[bytes], old: Sequence[bytes | None]
    ) -> None:
        """Save the values of keys as they were before this step's first write."""
        space = _of_state(_UNDO, state_id)
        for part in _parts(*self._first_time(prefix, keys, old)):
            _put(self._tx, space + _SERIAL.pack(self._step, self._serial), _pack((table, *part)))
            self._serial += 1
        reach("saved")

    def _first_time(self, prefix: bytes, keys: Sequence[bytes], old: Sequence[bytes | None]) -> _Old:
        """Return unsaved keys and old values; a set is built on the second write."""
        known = self._saved.get(prefix)
        if known is None:
            self._saved[prefix] = keys
            return keys, old
        seen = self._saved[prefix] = known if isinstance(known, set) else set(known)
        fresh = [position for position, key in enumerate(keys) if key not in seen]
        seen.update(keys)
        return [keys[position] for position in fresh], [old[position] for position in fresh]


def _parts(keys: Sequence[bytes], values: Sequence[bytes | None]) -> Iterator[_Old]:
    """Split old values into runs of about 1 MiB."""
    size = sum(map(len, keys)) + sum(map(len, filter(None, values)))
    run = max(1, len(keys) * _UNDO_SIZE // max(size, 1))
    for start in range(0, len(keys), run):
        yield keys[start : start + run], values[start : start + run]


def _get(tx: Tx, key: bytes) -> bytes | None:
    stored = tx.get(key)
    if stored is None:
        check_absent(tx, [key])
        return None
    check(key, stored)
    return stored[:-SUM_BYTES]


def _put(tx: Tx, key: bytes, value: bytes) -> None:
    tx.put(key, sealed(key, value))


def progress_of(tx: Tx, state_id: str) -> StampProgress | None:
    """Return the stored progress of `state_id`, None if it was never written."""
    stored = _get(tx, _STAMP + state_id.encode())
    if stored is None:
        return None
    epoch, batch, step, solid = _PROGRESS.unpack(stored)
    return StampProgress(Stamp(epoch, batch, step), solid)


def rewind(tx: Tx, state_id: str, stamp: Stamp) -> StampProgress | None:
    """Roll back an earlier run of this step, delete older undo, and return the progress."""
    check_name("the operator id", state_id, MAX_STATE_ID)
    progress = progress_of(tx, state_id)
    if progress is None:
        return None
    progress.admit(state_id, stamp)
    space = _of_state(_UNDO, state_id)
    if progress.stamp.batch < stamp.batch:
        _erase(tx, space, _end(space))
    elif progress.repeats(stamp):
        first = space + _STEP.pack(stamp.step)
        for saved in reversed(list(_keys(tx, first, _end(space)))):
            _restore(tx, state_id, saved)
        _erase(tx, first, _end(space))
    return progress


def _restore(tx: Tx, state_id: str, saved: bytes) -> None:
    record = _get(tx, saved)
    assert record is not None
    table, keys, values = _unpack(record)
    prefix = _table(state_id, table)
    for key, value in zip(reversed(keys), reversed(values), strict=True):
        if value is None:
            tx.delete(prefix + key)
        else:
            tx.put(prefix + key, value)


def _keys(tx: Tx, low: bytes, high: bytes) -> Iterator[bytes]:
    with tx.cursor() as cursor:
        if not cursor.set_range(low):
            return
        for key in cursor.iternext(keys=True, values=False):
            if key >= high:
                return
            yield key


def _erase(tx: Tx, low: bytes, high: bytes) -> None:
    with tx.cursor() as cursor:
        there = cursor.set_range(low)
        while there and cursor.key() < high:
            there = cursor.delete() and bool(cursor.key())


def write_stamps(tx: Tx, before: Mapping[str, StampProgress | None], stamp: Stamp, undo: bool) -> None:
    """Store `stamp` as committed for each state id, based on its earlier progress."""
    for state_id, progress in before.items():
        after = next_progress(progress, stamp, undo)
        _put(
            tx,
            _STAMP + state_id.encode(),
            _PROGRESS.pack(after.stamp.epoch, after.stamp.batch, after.stamp.step, after.solid),
        )


def state_ids(tx: Tx) -> list[str]:
    """Return the state ids that have a stamp, sorted."""
    return [key[1:].decode() for key in _keys(tx, _STAMP, _STAMP + b"\xff")]


def forget(tx: Tx, state_id: str) -> None:
    """Delete all entries of `state_id`."""
    for space in (_DATA, _UNDO):
        _erase(tx, _of_state(space, state_id), _end(_of_state(space, state_id)))
    tx.delete(_STAMP + state_id.encode())
