"""Reading and writing one shard in LMDB, with undo.

d owner 0 table 0 key         value
u owner 0 step serial         old values of one write: [table, keys, values]
s owner                       epoch, batch, step, highest step without undo
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import lmdb
import msgspec

from umbel.errors import InvalidValue
from umbel.state.failpoints import reach
from umbel.state.port import MAX_KEY, MAX_OWNER, MAX_TABLE, Entry, Range, Stamp, check_keys, check_name
from umbel.state.progress import Progress, next_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from umbel.state.environments import Cursor, Tx

_DATA, _UNDO, _STAMP = b"d", b"u", b"s"
_PROGRESS = struct.Struct(">qqqq")
_SERIAL = struct.Struct(">IQ")
_STEP = struct.Struct(">I")
_UNDO_SIZE = 1 << 20

_Old = tuple[Sequence[bytes], Sequence[bytes | None]]
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[str, list[bytes], list[bytes | None]]).decode


def _owned(space: bytes, owner: str) -> bytes:
    return space + owner.encode() + b"\0"


def _table(owner: str, table: str) -> bytes:
    return _DATA + owner.encode() + b"\0" + table.encode() + b"\0"


def _end(prefix: bytes) -> bytes:
    """Return the bound above every key that begins with `prefix`, which ends in a zero byte."""
    return prefix[:-1] + b"\x01"


def _bound(prefix: bytes, key: bytes) -> bytes:
    """Return where `key` lies among the keys of a table, however long it is.

    What is not of the table differs within the prefix, so any bound in the table is on the right side of it.
    """
    return prefix + (key if len(key) <= MAX_KEY else key[:MAX_KEY] + b"\0")


class LmdbReader:
    """A read transaction of one shard."""

    __slots__ = ("_tx",)

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    def get(self, owner: str, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None where there is none."""
        prefix = _table(owner, table)
        try:
            return list(map(self._tx.get, [prefix + key for key in keys]))
        except lmdb.BadValsizeError:
            return [self._tx.get(prefix + key) if len(key) <= MAX_KEY else None for key in keys]

    def scan(
        self, owner: str, table: str, ranges: Sequence[Range], *, limit: int | None = None, reverse: bool = False
    ) -> list[list[Entry]]:
        """Return, for each `low <= key < high`, its entries in order of key; see `umbel.state.port.Reader`."""
        prefix = _table(owner, table)
        walk = _down if reverse else _up
        with self._tx.cursor() as cursor:
            return [walk(cursor, prefix, low, high, limit) for low, high in ranges]


class NothingThere:
    """A shard nothing was written to."""

    def get(self, owner: str, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return None for each key."""
        return [None] * len(keys)

    def scan(
        self, owner: str, table: str, ranges: Sequence[Range], *, limit: int | None = None, reverse: bool = False
    ) -> list[list[Entry]]:
        """Return no entries for each range."""
        return [[] for _ in ranges]


def _up(cursor: Cursor, prefix: bytes, low: bytes, high: bytes, limit: int | None) -> list[Entry]:
    stop = _bound(prefix, high)
    if not cursor.set_range(_bound(prefix, low)):
        return []
    return _walked(cursor, cursor.next, lambda key: key < stop, len(prefix), limit)


def _down(cursor: Cursor, prefix: bytes, low: bytes, high: bytes, limit: int | None) -> list[Entry]:
    start = _bound(prefix, low)
    if not (cursor.prev() if cursor.set_range(_bound(prefix, high)) else cursor.last()):
        return []
    return _walked(cursor, cursor.prev, lambda key: key >= start, len(prefix), limit)


def _walked(
    cursor: Cursor, advance: Callable[[], bool], inside: Callable[[bytes], bool], skip: int, limit: int | None
) -> list[Entry]:
    """Collect entries from where the cursor is.

    The value behind the last one is never read: it may be another table's, and huge.
    """
    found: list[Entry] = []
    while len(found) != limit and (key := cursor.key()) and inside(key):
        found.append((key[skip:], cursor.value()))
        if not advance():
            break
    return found


class LmdbWriter(LmdbReader):
    """The write transaction of one shard."""

    __slots__ = ("_cursor", "_owners", "_read", "_saved", "_serial", "_step")

    def __init__(self, tx: Tx, owners: Sequence[str], step: int | None) -> None:
        super().__init__(tx)
        self._owners = frozenset(owners)
        self._cursor = tx.cursor()
        self._step = step
        self._serial = 0
        self._saved: dict[bytes, set[bytes] | Sequence[bytes]] = {}
        self._read: dict[bytes, tuple[list[bytes], list[bytes | None]]] = {}

    def get(self, owner: str, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return values, and remember those of the last call: what is read is often what is written next."""
        found = super().get(owner, table, keys)
        if self._step is not None and owner in self._owners:
            self._read[_table(owner, table)] = (list(keys), found.copy())
        return found

    def put(self, owner: str, table: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set the value of each key, keeping its old one in the undo."""
        prefix = self._prefix(owner, table, keys)
        if len(keys) != len(values):
            raise InvalidValue(f"{len(keys)} keys were given for {len(values)} values")
        places = [prefix + key for key in keys]
        if self._step is None:
            self._cursor.putmulti(zip(places, values, strict=True))
            reach("put")
            return
        old = self._remembered(prefix, keys)
        if old is None:
            old = list(map(self._cursor.replace, places, values))
        else:
            self._cursor.putmulti(zip(places, values, strict=True))
        reach("put")
        self._save(owner, table, prefix, keys, old)

    def delete(self, owner: str, table: str, keys: Sequence[bytes]) -> None:
        """Remove each key, keeping its old value in the undo."""
        prefix = self._prefix(owner, table, keys)
        old = list(map(self._cursor.pop, [prefix + key for key in keys]))
        reach("put")
        if self._step is not None:
            self._save(owner, table, prefix, keys, old)

    def _remembered(self, prefix: bytes, keys: Sequence[bytes]) -> list[bytes | None] | None:
        """Return the old values of keys that were all read by the last get, else None.

        Keys written since that get may have others; those are saved already, and their old values are not used.
        """
        read, found = self._read.pop(prefix, ([], []))
        if len(read) < len(keys):
            return None
        if read == keys:
            return found
        values = dict(zip(read, found, strict=True))
        return [values[key] for key in keys] if all(key in values for key in keys) else None

    def _prefix(self, owner: str, table: str, keys: Sequence[bytes]) -> bytes:
        if owner not in self._owners:
            raise InvalidValue(f"operator {owner} is not one of the transaction's owners")
        check_name("the table name", table, MAX_TABLE)
        check_keys(keys)
        return _table(owner, table)

    def _save(self, owner: str, table: str, prefix: bytes, keys: Sequence[bytes], old: Sequence[bytes | None]) -> None:
        """Keep the values keys had before this step touched them."""
        space = _owned(_UNDO, owner)
        for part in _parts(*self._first_time(prefix, keys, old)):
            self._tx.put(space + _SERIAL.pack(self._step, self._serial), _pack((table, *part)))
            self._serial += 1
        reach("saved")

    def _first_time(self, prefix: bytes, keys: Sequence[bytes], old: Sequence[bytes | None]) -> _Old:
        """Return what was not saved in this step before. A set is made the second time a table is written."""
        known = self._saved.get(prefix)
        if known is None:
            self._saved[prefix] = keys
            return keys, old
        seen = self._saved[prefix] = known if isinstance(known, set) else set(known)
        fresh = [position for position, key in enumerate(keys) if key not in seen]
        seen.update(keys)
        return [keys[position] for position in fresh], [old[position] for position in fresh]


def _parts(keys: Sequence[bytes], values: Sequence[bytes | None]) -> Iterator[_Old]:
    """Cut old values into runs of about a megabyte."""
    size = sum(map(len, keys)) + sum(map(len, filter(None, values)))
    run = max(1, len(keys) * _UNDO_SIZE // max(size, 1))
    for start in range(0, len(keys), run):
        yield keys[start : start + run], values[start : start + run]


def progress_of(tx: Tx, owner: str) -> Progress | None:
    """Return the stored progress of `owner`, None when it was never written."""
    stored = tx.get(_STAMP + owner.encode())
    if stored is None:
        return None
    epoch, batch, step, solid = _PROGRESS.unpack(stored)
    return Progress(Stamp(epoch, batch, step), solid)


def rewind(tx: Tx, owner: str, stamp: Stamp) -> Progress | None:
    """Take a former run of this step back, and forget the undo of former batches; return the owner's progress."""
    check_name("the operator id", owner, MAX_OWNER)
    progress = progress_of(tx, owner)
    if progress is None:
        return None
    progress.admit(owner, stamp)
    space = _owned(_UNDO, owner)
    if progress.stamp.batch < stamp.batch:
        _erase(tx, space, _end(space))
    elif progress.repeats(stamp):
        first = space + _STEP.pack(stamp.step)
        for saved in reversed(list(_keys(tx, first, _end(space)))):
            _restore(tx, owner, saved)
        _erase(tx, first, _end(space))
    return progress


def _restore(tx: Tx, owner: str, saved: bytes) -> None:
    record = tx.get(saved)
    assert record is not None
    table, keys, values = _unpack(record)
    prefix = _table(owner, table)
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


def write_stamps(tx: Tx, before: Mapping[str, Progress | None], stamp: Stamp, undo: bool) -> None:
    """Store that `stamp` is committed for each owner, given its progress before."""
    for owner, progress in before.items():
        after = next_progress(progress, stamp, undo)
        tx.put(
            _STAMP + owner.encode(),
            _PROGRESS.pack(after.stamp.epoch, after.stamp.batch, after.stamp.step, after.solid),
        )


def owners(tx: Tx) -> list[str]:
    """Return the operators that have a stamp, sorted."""
    return [key[1:].decode() for key in _keys(tx, _STAMP, _STAMP + b"\xff")]


def forget(tx: Tx, owner: str) -> None:
    """Remove everything of `owner`."""
    for space in (_DATA, _UNDO):
        _erase(tx, _owned(space, owner), _end(_owned(space, owner)))
    tx.delete(_STAMP + owner.encode())
