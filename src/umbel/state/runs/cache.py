"""A cache of runs on this machine, for state that is in an object store."""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from umbel.state import disk

if TYPE_CHECKING:
    from collections.abc import Callable

_DRAFT = ".draft"
_OWN = re.compile(rf"[0-9a-f]{{32}}\.run(\.[0-9a-f]{{32}}{re.escape(_DRAFT)})?")


class RunCache:
    """A folder of runs with a limit; the longest unused ones are deleted first.

    Several processes may share a folder. A run's name is unique, so a file that is there is the run. Without room on the disk
    runs are read into memory.

    Args:
        folder: the folder, made when something is cached.
        limit: bytes; a deleted run that is still mapped takes its bytes until it is let go.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self._limit = folder, limit

    def mapped(self, name: str, read: Callable[[], bytes]) -> pa.Buffer:
        """Return a run, mapped where it can be cached.

        Args:
            name: of the run.
            read: returns its bytes, called if it is not cached.
        """
        path = self.folder / name
        for _ in range(2):
            try:
                with pa.memory_map(str(path)) as mapped:
                    buffer = mapped.read_buffer()
                with suppress(OSError):
                    os.utime(path)
                return buffer
            except FileNotFoundError:
                data = read()
                if not self.add(name, data):
                    break
            except OSError:  # another account's file, say
                data = read()
                break
        return pa.py_buffer(data)

    def add(self, name: str, data: bytes | memoryview) -> bool:
        """Cache a run; return False if there is no room for it."""
        if len(data) > self._limit:
            return False
        draft = self.folder / f"{name}.{uuid.uuid4().hex}{_DRAFT}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft.write_bytes(data)
            draft.chmod(0o400)  # a mapped file that is cut ends whoever reads it
            disk.sync_file(draft)  # what has its name after a power cut is whole
            draft.rename(self.folder / name)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            return False
        with suppress(OSError):  # the next run that is added makes room, too
            self._shrink(apart_from=name)
        return True

    def remove(self, name: str) -> None:
        """Delete a run, if it is cached."""
        with suppress(OSError):
            (self.folder / name).unlink(missing_ok=True)

    def is_cut(self, name: str, size: int) -> bool:
        """Return True if a run is cached, but has lost its end."""
        try:
            return (self.folder / name).stat().st_size < size
        except OSError:
            return False

    def size(self) -> int:
        """Return the bytes of all cached runs."""
        return sum(size for _, size, _ in self._entries())

    def _shrink(self, apart_from: str) -> None:
        entries = sorted(self._entries())
        excess = sum(size for _, size, _ in entries) - self._limit
        for _, size, path in entries:
            if excess <= 0:
                return
            if path.name != apart_from:
                self.remove(path.name)
                excess -= size

    def _entries(self) -> list[tuple[float, int, Path]]:
        """Return the time of last use, size and path of each run, whole or not.

        The folder may have files of others, which stay.
        """
        found = []
        for path in filter(_is_own, self.folder.glob("*")):
            with suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return found


def _is_own(path: Path) -> bool:
    return _OWN.fullmatch(path.name) is not None
