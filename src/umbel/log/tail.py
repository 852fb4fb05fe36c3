"""The end of an ingest log, shared by every process that appends to it.

The file `lock` in the log's directory carries a lock and 64 bytes with the end of the log. They are a hint that
saves scanning, never authoritative: if they do not match the last segment (a writer died between the two writes, or the
machine restarted) the end is found by verifying the records themselves.
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

from umbel.log.segments import ORIGIN, PREAMBLE_BYTES, LogPosition, Segment, recover, write_oldest
from umbel.state import disk

_HINT = struct.Struct("<QQQ36s")
_HINT_BYTES = _HINT.size + 4
_UNKNOWN_BOOT = b"\0" * 36


class Tail:
    """The lock of a log and the position of its end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._name = "/".join(directory.parts[-2:]).encode()
        disk.make_folder(directory)
        self._file = disk.open_file(directory / "lock", disk.CREATE)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the log: no other process appends within the block."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def end(self) -> LogPosition:
        """Return the end of the log, repairing it first if a writer died.

        The caller must have the lock.
        """
        hint = self.hint()
        if hint is not None and self._fits(hint):
            return hint
        known = self._warned()
        end = recover(self.directory, known and known[0])
        if known is not None and (end is None or _is_missing(known[0], end, is_ours=hint is not None)):
            # Records are gone that may have been read. New records go into a new segment, so that no position
            # ever means another record, and a reader that continues detects the missing ones.
            end = self._begin(
                LogPosition(known[0].segment + 1, PREAMBLE_BYTES, max(known[0].row, end.row if end else 0))
            )
        elif end is None:
            write_oldest(self.directory, ORIGIN)
            end = self._begin(ORIGIN)
        self.move(end)
        return end

    def _begin(self, at: LogPosition) -> LogPosition:
        segment = Segment(self.directory, at.segment)
        if not segment.path.exists():
            disk.close(segment.create(at.row))
        return at

    def move(self, end: LogPosition) -> None:
        """Store `end` as the end of the log."""
        body = _HINT.pack(end.segment, end.offset, end.row, boot_id())
        disk.write(self._file, body + struct.pack("<I", zlib.crc32(body + self._name)), 0)

    def hint(self) -> LogPosition | None:
        """Return the end last written since the machine's boot, None if unknown.

        Needs no lock.
        """
        report = self._warned()
        return report[0] if report is not None and report[1] == boot_id() != _UNKNOWN_BOOT else None

    def _warned(self) -> tuple[LogPosition, bytes] | None:
        """Return the end as last written, and the boot id of that time."""
        data = os.pread(self._file, _HINT_BYTES, 0)
        body, sums = data[:-4], struct.unpack("<I", data[-4:]) if len(data) == _HINT_BYTES else ()
        if zlib.crc32(body + self._name) not in sums and zlib.crc32(body) not in sums:  # older versions wrote no name
            return None
        segment, offset, row, boot = _HINT.unpack(body)
        return LogPosition(segment, offset, row), boot

    def reaches(self, end: LogPosition) -> bool:
        """Return True if the files have all bytes before a position."""
        try:
            return Segment(self.directory, end.segment).path.stat().st_size >= end.offset
        except FileNotFoundError:
            return False

    def _fits(self, hint: LogPosition) -> bool:
        try:
            size = Segment(self.directory, hint.segment).path.stat().st_size
        except FileNotFoundError:
            return False
        return size == hint.offset and not Segment(self.directory, hint.segment + 1).path.exists()

    def close(self) -> None:
        """Release the file."""
        disk.close(self._file)


def _is_missing(known: LogPosition, end: LogPosition, *, is_ours: bool) -> bool:
    """Return True if a log lost more records than a power failure explains.

    Args:
        known: its end as last stored.
        end: its end as found by recovery.
        is_ours: True if `known` was stored since the boot.
    """
    if known.segment != end.segment:
        return known.segment > end.segment
    return is_ours and known.offset > end.offset


@cache
def boot_id() -> bytes:
    """Return 36 bytes that differ between boots of this machine, zeros if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip().ljust(36, b"\0")[:36]
    except OSError:
        return _UNKNOWN_BOOT
