"""Environments of LMDB: files that are mapped, with what can be made anew from others.

Each entry has a checksum of its own. A key that is not found lies between two entries that are whole and in order: one of which a
bit has flipped would be beside it, or out of order there.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import finalize
from zlib import crc32

import lmdb

HARM = (
    lmdb.InvalidError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.BadTxnError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
    lmdb.MapResizedError,
    ValueError,
    struct.error,
)
"""Errors of damaged environments; those of a full disk, for instance, are not among them."""
_MAP_BYTES = 1 << 38
_META_PAGES = 2
_CHECKSUM = struct.Struct("<I")
_RESIDUE = 0x2144DF1C
"""The CRC-32 of anything that its own CRC-32 follows."""


class MappedEnvironment:
    """An open environment, and its file, which is mapped.

    LMDB's own locks are not used: the caller sees to it that one process writes at a time, and none reads meanwhile.

    Args:
        folder: for its file.
        tables: how many named ones it may have.

    Raises:
        HARM: the file is damaged, or was cut.
    """

    def __init__(self, folder: Path, tables: int = 0) -> None:
        self.lmdb = lmdb.open(str(folder), map_size=_MAP_BYTES, max_dbs=tables, lock=False)
        self._folder, self._page = folder, self.lmdb.stat()["psize"]
        self._file = os.open(folder / "data.mdb", os.O_RDWR | os.O_CLOEXEC)
        self._closing = finalize(self, os.close, self._file)
        try:
            self.is_current()
        except ValueError:
            self.close()
            raise

    def is_current(self) -> bool:
        """Return False if the file was deleted, as by a process that has begun anew.

        Raises:
            ValueError: the file was cut: reading behind its end would kill the process.
        """
        found = os.fstat(self._file)
        if found.st_nlink and (found.st_size < _META_PAGES * self._page or found.st_size < self._extent()):
            raise ValueError(f"the file in {self._folder} was cut")
        return found.st_nlink > 0

    def _extent(self) -> int:
        return int(self.lmdb.info()["last_pgno"] + 1) * self._page

    @contextmanager
    def writing(self) -> Iterator[lmdb.Transaction]:
        """Write in a transaction, which is committed at the end of the block."""
        with self.lmdb.begin(write=True) as transaction:
            yield transaction
        if os.fstat(self._file).st_size < self._extent():  # the last pages may be free, and were not written
            with suppress(OSError):
                os.truncate(self._file, self._extent())

    def close(self) -> None:
        """Close it; the file stays."""
        self.lmdb.close()
        self._closing()


def erase_environment(folder: Path) -> None:
    """Delete the files of an environment."""
    shutil.rmtree(folder, ignore_errors=True)


def sealed(key: bytes, value: bytes) -> bytes:
    """Return what is stored with a key: a value, and a checksum of both."""
    return value + _CHECKSUM.pack(crc32(value, crc32(key)))


def unsealed(key: bytes, stored: bytes | memoryview, size: int) -> bytes:
    """Return the value stored with a key; older versions of umbel wrote no checksum.

    Args:
        key: the key.
        stored: as it was read.
        size: of the value in bytes.

    Raises:
        ValueError: the checksum does not match.
    """
    is_sealed = len(stored) == size + _CHECKSUM.size and crc32(stored, crc32(key)) == _RESIDUE
    if not is_sealed and len(stored) != size:
        raise ValueError("an entry does not match its checksum")
    return bytes(stored[:size])


def entry_of(cursor: lmdb.Cursor, key: bytes, size: int) -> bytes | None:
    """Return the value stored with a key, None where there is none.

    Args:
        cursor: of a table.
        key: the key.
        size: of its values in bytes, and of any other entry's.

    Raises:
        ValueError: an entry where it would be is damaged.
    """
    is_before_another = cursor.set_range(key)
    if is_before_another:
        following = bytes(cursor.key())
        value = unsealed(following, cursor.value(), size)
        if following == key:
            return value
        if following < key:
            raise ValueError("entries are not in order")
    if cursor.prev() if is_before_another else cursor.last():
        former = bytes(cursor.key())
        unsealed(former, cursor.value(), size)
        if former >= key:
            raise ValueError("entries are not in order")
    return None
