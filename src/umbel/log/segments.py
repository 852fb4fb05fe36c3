"""Segment files of an ingest log, their order and their recovery after a crash.

An endpoint's directory holds `00000000000000000001.seg`, `…02.seg` and so on; each starts with 32 bytes that repeat
its number and say how many rows stand in the segments before it. Records of one log are therefore in one total order,
(segment, offset), and every row has one number, whichever server process wrote it.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from umbel.errors import InvalidValue
from umbel.log.records import DIGEST_BYTES, HEADER_BYTES, Head, Record, head, walk

_PREAMBLE = struct.Struct("<8sQQII")
_MAGIC = b"umbellog"
_VERSION = 1
PREAMBLE_BYTES = _PREAMBLE.size
SUFFIX = ".seg"
_WINDOW = 1 << 16


@dataclass(frozen=True, order=True, slots=True)
class LogPosition:
    """A place between two records.

    Args:
        segment: number of the segment file, from 1.
        offset: bytes into it, at the start of a record or at the end of the last.
        row: how many rows come before it in the whole log.
    """

    segment: int
    offset: int
    row: int

    def to_json(self) -> dict[str, int]:
        """Return the position as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, int]) -> Self:
        """Return the position that `to_json` described."""
        return cls(data["segment"], data["offset"], data["row"])


ORIGIN = LogPosition(1, PREAMBLE_BYTES, 0)
"""The position before the first record ever written."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment file, known by its directory and number."""

    directory: Path
    number: int

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.directory / f"{self.number:020d}{SUFFIX}"

    @property
    def index(self) -> Path:
        """Where the sparse index beside it is."""
        return self.path.with_suffix(".idx")

    def create(self, row: int) -> int:
        """Create the file durably and return it open for reading and writing.

        Args:
            row: how many rows come before it in the log.
        """
        file = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o644)
        os.pwrite(file, preamble(self.number, row), 0)
        os.fsync(file)
        sync_directory(self.directory)
        return file

    def open(self) -> int:
        """Return the file open for reading and writing."""
        return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def first_row(self) -> int | None:
        """Return how many rows come before the segment; None when its creation was cut short."""
        with self.path.open("rb") as file:
            return parse_preamble(file.read(PREAMBLE_BYTES), self.number)

    def records(self, begin: int, end: int) -> Iterator[Record]:
        """Yield the whole records of a range that starts at a record, with checked payloads."""
        with self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size <= begin:
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                whole = memoryview(view)
                part = whole[begin:end]
                try:
                    yield from walk(part, begin)
                finally:
                    part.release()
                    whole.release()

    def heads(self, begin: int, end: int) -> Iterator[Head]:
        """Yield the heads of the records in a range known to be whole, skipping payloads."""
        with self.path.open("rb", buffering=_WINDOW) as file:
            offset = begin
            while offset < end:
                file.seek(offset)
                found = head(file.read(HEADER_BYTES + DIGEST_BYTES), offset)
                if found is None:
                    return
                yield found
                offset = found.end


def preamble(number: int, row: int) -> bytes:
    """Return the first bytes of a segment file."""
    body = _PREAMBLE.pack(_MAGIC, number, row, _VERSION, 0)[:-4]
    return body + struct.pack("<I", zlib.crc32(body))


def parse_preamble(data: bytes, number: int) -> int | None:
    """Return the rows before segment `number` from its first bytes, None when they are cut or damaged."""
    if len(data) < PREAMBLE_BYTES or zlib.crc32(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        return None
    magic, found, row, _, _ = _PREAMBLE.unpack(data)
    return int(row) if magic == _MAGIC and found == number else None


def segments_in(directory: Path) -> list[Segment]:
    """Return the segments of a log, oldest first."""
    if not directory.is_dir():
        return []
    return [Segment(directory, number) for number in sorted(int(path.stem) for path in directory.glob(f"*{SUFFIX}"))]


def recover(directory: Path) -> LogPosition | None:
    """Return the end of the log after cutting off what a crash left half written; None for no segments.

    Only the holder of the log's lock may call this: it truncates.
    """
    found = segments_in(directory)
    while found:
        last = found.pop()
        row = last.first_row()
        if row is not None:
            return _cut(last, row)
        last.path.unlink()  # its creation was cut short: nothing in it was ever acknowledged
        sync_directory(directory)
    return None


def _cut(segment: Segment, row: int) -> LogPosition:
    end = PREAMBLE_BYTES
    for record in segment.records(PREAMBLE_BYTES, segment.path.stat().st_size):
        end, row = record.end, record.row + record.entry.rows
    file = segment.open()
    try:
        if os.fstat(file).st_size > end:
            os.ftruncate(file, end)
        os.fsync(file)
    finally:
        os.close(file)
    return LogPosition(segment.number, end, row)


def sync_directory(directory: Path) -> None:
    """Make the creation or removal of files in a directory durable."""
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def directory_of(root: Path, webhook: str, endpoint: str) -> Path:
    """Return where the log of an endpoint is kept: `<root>/ingest/<webhook>/<endpoint>`, names escaped.

    Raises:
        InvalidValue: a name is empty or too long for a file name.
    """
    return root / "ingest" / _file_name("webhook", webhook) / _file_name("endpoint", endpoint)


def _file_name(kind: str, name: str) -> str:
    escaped = quote(name, safe="").replace(".", "%2E")
    if not 0 < len(escaped) <= 200:
        raise InvalidValue(f"{kind} name {name[:80]!r} must have 1 to 200 characters once escaped for a file name")
    return escaped
