"""Checksums of the entries of an LMDB shard, and the order of its pages.

Every value ends in a checksum of its key and itself. A key is taken to be missing when its neighbours
are as they were written.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import lmdb

if TYPE_CHECKING:
    from umbel.state.environments import Cursor, Tx

SUM_BYTES = 4
SOUND = 0x2144DF1C
"""The CRC-32 of any bytes that end in their own CRC-32."""
_FENCE = b"e"
_LARGE, _LARGE_ENTRIES = 256, 10_000


def sealed(key: bytes, value: bytes) -> bytes:
    """Return a value followed by a checksum of its key and itself, as stored."""
    return value + zlib.crc32(value, zlib.crc32(key)).to_bytes(SUM_BYTES, "little")


def check(key: bytes, stored: bytes) -> None:
    """Raise lmdb.CorruptedError unless the checksum matches the key and the value."""
    if zlib.crc32(stored, zlib.crc32(key)) != SOUND:
        raise lmdb.CorruptedError(f"the entry {key[:120]!r} is not as it was written")


def fence(tx: Tx) -> None:
    """Write the entry that separates the tables from the other entries."""
    tx.put(_FENCE, sealed(_FENCE, b""))


class Checks:
    """Verifies entries of one transaction, large ones once.

    The ends of many ranges meet the same neighbours, which may be large.
    """

    __slots__ = ("_large",)

    def __init__(self) -> None:
        self._large: set[bytes] = set()

    def entry(self, cursor: Cursor) -> bytes:
        """Verify the entry at the cursor; return its key."""
        key = cursor.key()
        if key not in self._large:
            stored = cursor.value()
            check(key, stored)
            if len(stored) >= _LARGE:
                if len(self._large) >= _LARGE_ENTRIES:
                    self._large.clear()
                self._large.add(key)
        return key


def check_absent(tx: Tx, keys: Iterable[bytes], checks: Checks | None = None) -> None:
    """Raise lmdb.CorruptedError if a missing key may exist with damaged bytes."""
    checks = checks or Checks()
    with tx.cursor() as cursor:
        for key in keys:
            check_around(cursor, key, cursor.set_range(key), checks, is_absent=True)


def check_around(cursor: Cursor, key: bytes, is_below: bool, checks: Checks, *, is_absent: bool = False) -> bool:
    """Verify the first entry from `key` on and the previous one, leaving the cursor there."""
    if is_below:
        at = checks.entry(cursor)
        if at < key or (is_absent and at == key):
            raise lmdb.CorruptedError("its pages are out of order")
    if not (cursor.prev() if is_below else cursor.last()):
        return False
    before = checks.entry(cursor)
    if before >= key:
        raise lmdb.CorruptedError("its pages are out of order")
    return True


def check_all(tx: Tx) -> int:
    """Verify every entry; return the number of entries.

    Raises:
        lmdb.CorruptedError: one is damaged or out of order.
    """
    count, last = 0, b""
    with tx.cursor() as cursor:
        there = cursor.first()
        while there:
            key = cursor.key()
            check(key, cursor.value())
            if key <= last:
                raise lmdb.CorruptedError("its pages are out of order")
            count, last, there = count + 1, key, cursor.next()
    return count
