"""The end of an ingest log, shared by every process that appends to it.

The file `lock` in the log's directory carries a lock and 64 bytes that say where the log ends. They are a hint that
saves scanning, never the truth: when they do not fit the last segment (a writer died between the two writes, or the
machine restarted) the end is found by checking the records themselves.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from umbel.log.segments import ORIGIN, LogPosition, Segment, recover

_HINT = struct.Struct("<QQQ36s")
_HINT_BYTES = _HINT.size + 4
_UNKNOWN_BOOT = b"\0" * 36


class Tail:
    """The lock of a log and the position of its end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._file = os.open(directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other process from appending."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def end(self) -> LogPosition:
        """Return where the log ends, mending it first when a writer died. Call it while the lock is held."""
        hint = self.hint()
        if hint is not None and self._fits(hint):
            return hint
        end = recover(self.directory)
        if end is None:
            os.close(Segment(self.directory, ORIGIN.segment).create(ORIGIN.row))
            end = ORIGIN
        self.move(end)
        return end

    def move(self, end: LogPosition) -> None:
        """Say that the log ends here now."""
        body = _HINT.pack(end.segment, end.offset, end.row, boot_id())
        os.pwrite(self._file, body + struct.pack("<I", zlib.crc32(body)), 0)

    def hint(self) -> LogPosition | None:
        """Return the end as last written in this run of the machine, None when that is unknown. Needs no lock."""
        data = os.pread(self._file, _HINT_BYTES, 0)
        if len(data) < _HINT_BYTES or zlib.crc32(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
            return None
        segment, offset, row, boot = _HINT.unpack(data[:-4])
        return LogPosition(segment, offset, row) if boot == boot_id() != _UNKNOWN_BOOT else None

    def _fits(self, hint: LogPosition) -> bool:
        try:
            size = Segment(self.directory, hint.segment).path.stat().st_size
        except FileNotFoundError:
            return False
        return size == hint.offset and not Segment(self.directory, hint.segment + 1).path.exists()

    def close(self) -> None:
        """Release the file."""
        os.close(self._file)


@cache
def boot_id() -> bytes:
    """Return 36 bytes that differ between runs of this machine, zeros when it does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip().ljust(36, b"\0")[:36]
    except OSError:
        return _UNKNOWN_BOOT
