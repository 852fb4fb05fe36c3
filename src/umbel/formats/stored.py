"""Stored files: files of a folder or a bucket, as formats read them."""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

Stamp = tuple[int, int]
"""The size of a file in bytes, and a number that differs if its content does."""
PACKED = (".gz", ".zst")
"""The endings of compressed files, which can only be read from their start."""
LONGEST_SHOWN = 900
"""Characters of a file's name in messages."""


class FileLostError(Exception):
    """A file cannot be read any more as it was planned."""


class DamagedError(Exception):
    """A file cannot be read further; not for the value of a record."""


class StoredFile(Protocol):
    """A file that can be read at any offset.

    Reading raises FileNotFoundError if it was deleted, FileLostError if it was overwritten since it was planned, as far as its
    storage can tell, or archived.
    """

    @property
    def suffix(self) -> str:
        """The last ending of its name, with the dot, in lower case."""

    @property
    def identity(self) -> Hashable:
        """Its name and version; None if reading does not demand a version."""

    def size(self) -> int:
        """Return its size in bytes."""

    def open(self) -> IO[bytes]:
        """Open it, seekable."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine.

    Args:
        path: its path.
        stamp: its size and modification time as planned; None to read what there is.
        may_grow: True if it may be longer by now, because no more is read than was planned.
    """

    path: Path
    stamp: Stamp | None = None
    may_grow: bool = False

    @property
    def suffix(self) -> str:
        """The last ending of its name, with the dot, in lower case."""
        return self.path.suffix.lower()

    @property
    def identity(self) -> Hashable:
        """Its path and stamp; None without a stamp."""
        return None if self.stamp is None else (str(self.path), self.stamp)

    def size(self) -> int:
        """Return its size in bytes, as planned."""
        return self.path.stat().st_size if self.stamp is None else self.stamp[0]

    def open(self) -> IO[bytes]:
        """Open it.

        Raises:
            FileLostError: it was changed since it was planned.
        """
        file = self.path.open("rb")
        found = stamp_of(os.fstat(file.fileno()))
        if self.stamp is not None and found != self.stamp and not (self.may_grow and found[0] > self.stamp[0]):
            file.close()
            raise FileLostError(
                "the file was changed before it was read: create files by renaming them into the folder"
            )
        return file


def stamp_of(facts: os.stat_result) -> Stamp:
    """Return the size of a local file, and its modification time in µs."""
    return facts.st_size, facts.st_mtime_ns // 1000


def is_packed(file: StoredFile) -> bool:
    """Return True for a compressed file."""
    return file.suffix in PACKED


def printable(name: str) -> str:
    """Return the name of a file for messages.

    Bytes that are not UTF-8 are escaped; of a long name the end is left, for the catalog has 1,024 characters for a position.
    """
    shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return shown if len(shown) <= LONGEST_SHOWN else f"…{shown[-LONGEST_SHOWN:]}"
