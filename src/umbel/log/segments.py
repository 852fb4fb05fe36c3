"""Segment files of an ingest log, their order and their recovery after a crash.

An endpoint's directory contains `00000000000000000001.seg`, `…02.seg` and so on; each starts with 32 bytes that repeat
its number, the number of rows in the segments before it, and the identity of the log, which is random. Records of one log are
therefore in one total order, (segment, offset), and every row has one number, whichever server process wrote it.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import quote

from umbel.errors import InvalidValue
from umbel.log.records import DIGEST_BYTES, HEADER_BYTES, Gap, Head, LogRecord, head, unpack, walk_past_damage
from umbel.state import disk
from umbel.state.stored_json import parse_stored

_PREAMBLE = struct.Struct("<8sQQII")
_MAGIC = b"umbellog"
_VERSION, _VERSION_BITS = 1, 8
PREAMBLE_BYTES = _PREAMBLE.size
ANY_LOG = (1 << 24) - 1
"""The identity of a log that was lost with its files."""
FOREIGN = "is of another log: of another deployment or endpoint"
SUFFIX = ".seg"
OLDEST = "oldest"
_WINDOW = 1 << 16


@dataclass(frozen=True, order=True, slots=True)
class LogPosition:
    """A position between two records.

    Args:
        segment: number of the segment file, from 1.
        offset: bytes into it, at the start of a record or at the end of the last.
        row: number of rows before it in the whole log.
        log: the identity of the log, 0 if it is not known.
    """

    segment: int
    offset: int
    row: int
    log: int = field(default=0, compare=False)

    def to_json(self) -> dict[str, int]:
        """Return the position as plain data."""
        return {name: value for name, value in asdict(self).items() if value or name != "log"}

    @classmethod
    def from_json(cls, data: dict[str, int]) -> Self:
        """Return the position from the data of `to_json`."""
        return cls(data["segment"], data["offset"], data["row"], data.get("log", 0))


ORIGIN = LogPosition(1, PREAMBLE_BYTES, 0)
"""The position before the first record ever written."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment file, identified by its directory and number."""

    directory: Path
    number: int

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self.directory / f"{self.number:020d}{SUFFIX}"

    @property
    def index(self) -> Path:
        """Path of the sparse index beside it."""
        return self.path.with_suffix(".idx")

    def create(self, row: int, log: int = 0) -> int:
        """Create the file durably and return it open for reading and writing.

        Args:
            row: number of rows before it in the log.
            log: the identity of the log; that of the segments before it when 0.
        """
        log = log or _identity(self)
        file = disk.open_file(self.path, disk.NEW)
        disk.write(file, preamble(self.number, row, log), 0)
        disk.sync(file)
        disk.sync_directory(self.directory)
        return file

    def open(self) -> int:
        """Return the file open for reading and writing."""
        return disk.open_file(self.path)

    def first_row(self) -> int | None:
        """Return the number of rows before the segment.

        None if neither its preamble nor any of its records is readable.
        """
        row = self.preamble_row()
        if row is not None:
            return row
        first = next(self.found(PREAMBLE_BYTES), None)
        return None if first is None else first.row

    def preamble_row(self) -> int | None:
        """Return the number of rows before the segment from its preamble.

        None if the preamble is cut or damaged.
        """
        with self.path.open("rb") as file:
            return parse_preamble(file.read(PREAMBLE_BYTES), self.number)

    def log(self) -> int | None:
        """Return the identity of the log, 0 if an older version wrote the segment.

        None if the preamble is cut or damaged, or the file is missing.
        """
        try:
            with self.path.open("rb") as file:
                data = file.read(PREAMBLE_BYTES)
        except FileNotFoundError:
            return None
        return None if parse_preamble(data, self.number) is None else int(_PREAMBLE.unpack(data)[3]) >> _VERSION_BITS

    def walk(self, begin: int, end: int | None = None, row: int = 0) -> Iterator[LogRecord | Gap]:
        """Yield the whole records of a range and the gaps between them.

        The range starts at a record. Payloads are verified.

        Args:
            begin: offset of the range's first byte.
            end: its exclusive end offset; the end of the file when None.
            row: the number of its first row.
        """
        with self._mapped() as whole:
            part = whole[begin:end]
            try:
                yield from walk_past_damage(part, begin, row)
            finally:
                part.release()

    def found(self, begin: int, end: int | None = None) -> Iterator[LogRecord]:
        """Yield the whole records of a range, skipping gaps."""
        return (each for each in self.walk(begin, end) if isinstance(each, LogRecord))

    def heads(self, begin: int, end: int) -> Iterator[Head]:
        """Yield the heads of the records in a range.

        Payloads are skipped where the head has a valid checksum.
        """
        with self.path.open("rb", buffering=_WINDOW) as file:
            offset = begin
            while offset < end:
                file.seek(offset)
                found = head(file.read(HEADER_BYTES + DIGEST_BYTES), offset)
                if found is None or not found.is_checked:
                    found = next((_head_of(each) for each in self.found(offset, end)), None)
                if found is None or found.end > end:
                    return
                yield found
                offset = found.end

    def row_at(self, offset: int) -> int | None:
        """Return the row number of the record at an offset, None if none is readable."""
        with self._mapped() as whole:
            found = head(bytes(whole[offset : offset + HEADER_BYTES + DIGEST_BYTES]), offset)
            if found is None or found.end > len(whole):
                return None
            return found.row if found.is_checked or unpack(whole, offset, offset) else None

    @contextmanager
    def _mapped(self) -> Iterator[memoryview]:
        with self.path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                yield memoryview(b"")
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view, memoryview(view) as whole:
                yield whole


def _head_of(record: LogRecord) -> Head:
    entry = record.entry
    return Head(record.offset, record.size, entry.rows, record.row, entry.received_at, entry.digest, True)


def preamble(number: int, row: int, log: int = 0) -> bytes:
    """Return the first bytes of a segment file.

    The identity of the log is in bits of the version that older versions do not read.
    """
    body = _PREAMBLE.pack(_MAGIC, number, row, _VERSION | log << _VERSION_BITS, 0)[:-4]
    return body + struct.pack("<I", zlib.crc32(body))


def parse_preamble(data: bytes, number: int) -> int | None:
    """Return the number of rows before segment `number` from its first bytes.

    None if they are cut or damaged.
    """
    if len(data) < PREAMBLE_BYTES or zlib.crc32(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        return None
    magic, found, row, _, _ = _PREAMBLE.unpack(data)
    return int(row) if magic == _MAGIC and found == number else None


def is_same_log(one: int | None, other: int | None) -> bool:
    """Return True if two identities may be those of one log."""
    return one == other or not one or not other or ANY_LOG in (one, other)


def _identity_before(segment: Segment) -> int | None:
    """Return the identity in the segments before one.

    It is 0 if they have none, None if there are no segments.
    """
    before = [each for each in segments_in(segment.directory) if each.number < segment.number]
    found = (each.log() for each in reversed(before))
    known = next((ANY_LOG if log is None else log for log in found if log != 0), 0)
    return known if before else None


def _identity(segment: Segment) -> int:
    """Return the identity of the log for a new segment."""
    before = _identity_before(segment)
    is_new = before == 0 or (before is None and segment.number == ORIGIN.segment)
    return secrets.randbelow(ANY_LOG - 1) + 1 if is_new else before or ANY_LOG


def segments_in(directory: Path) -> list[Segment]:
    """Return the segments of a log, oldest first."""
    if not directory.is_dir():
        return []
    names = (path.stem for path in directory.glob(f"*{SUFFIX}"))  # others' files, such as copies, are none
    return [Segment(directory, number) for number in sorted(int(each) for each in names if each.isdecimal())]


def recover(directory: Path, known: LogPosition | None = None) -> LogPosition | None:
    """Truncate a log's torn end after a crash; return the end, None without segments.

    The caller must have the log's lock. Damaged records that may have been acknowledged remain in the file, and new records are
    written after them.

    Args:
        directory: of the log.
        known: an earlier end of the log, if known.
    """
    found = segments_in(directory)
    if not found:
        return None
    last, row = found[-1], found[-1].preamble_row()
    return _cut(last, _begun_again(found, known) if row is None else row)


def _begun_again(found: list[Segment], known: LogPosition | None) -> int:
    """Rewrite the preamble of the last segment; return the number of rows before it."""
    last, row = found[-1], found[-1].first_row()
    if row is None:
        before = (end_of(each) for each in reversed(found[:-1]))
        row = next((each.row for each in before if each is not None), known.row if known else 0)
    file = last.open()
    try:
        disk.write(file, preamble(last.number, row, _identity_before(last) or ANY_LOG), 0)
        disk.sync(file)
    finally:
        disk.close(file)
    return row


def end_of(segment: Segment) -> LogPosition | None:
    """Return the end of the last record or damage in a segment, None if unknown.

    It is unknown if the segment's first row is. Damage with an unknown number of rows counts as one row per byte: these row
    numbers
    are never used again.
    """
    row = segment.first_row()
    if row is None:
        return None
    end = PREAMBLE_BYTES
    for each in segment.walk(PREAMBLE_BYTES, row=row):
        if isinstance(each, LogRecord):
            row = each.row + each.entry.rows
        elif each.end == segment.path.stat().st_size and is_torn(segment, each):
            break
        else:
            row += each.size if each.rows is None else each.rows
        end = each.end
    return LogPosition(segment.number, end, row)


def is_torn(segment: Segment, last: Gap) -> bool:
    """Return True for a torn write after the last record, False for a damaged record."""
    with segment.path.open("rb") as file:
        file.seek(last.offset)
        data = file.read(last.size)
    # No JSON text ends in zeros: they are parts that the disk never wrote.
    if len(data) < HEADER_BYTES or data.endswith(b"\0\0"):
        return True
    found = head(data, last.offset)
    return found is not None and found.size > last.size


def _cut(segment: Segment, row: int) -> LogPosition:
    end = end_of(segment) or LogPosition(segment.number, PREAMBLE_BYTES, row)
    file = segment.open()
    try:
        if os.fstat(file).st_size > end.offset:
            disk.cut(file, end.offset)
        disk.sync(file)
    finally:
        disk.close(file)
    return end


def write_oldest(directory: Path, oldest: LogPosition) -> None:
    """Record the first position that must exist; records before it may then be deleted."""
    data = json.dumps(oldest.to_json()).encode()
    disk.replace(directory / OLDEST, b"%08x %b" % (zlib.crc32(data), data))


def read_oldest(directory: Path) -> LogPosition | None:
    """Return the first position that must exist, None if no readable record has it."""
    try:
        check, _, data = (directory / OLDEST).read_bytes().partition(b" ")
    except (FileNotFoundError, IsADirectoryError):
        return None
    if check != b"%08x" % zlib.crc32(data):
        return None
    try:
        return LogPosition.from_json(parse_stored(data))
    except (ValueError, KeyError, TypeError):
        return None


def directory_of(root: Path, webhook: str, endpoint: str) -> Path:
    """Return the directory of an endpoint's log: `<root>/ingest/<webhook>/<endpoint>`, names escaped.

    Raises:
        InvalidValue: a name is empty or too long for a file name.
    """
    return root / "ingest" / _file_name("webhook", webhook) / _file_name("endpoint", endpoint)


def _file_name(kind: str, name: str) -> str:
    escaped = quote(name, safe="").replace(".", "%2E")
    if not 0 < len(escaped) <= 200:
        raise InvalidValue(
            f"{kind} name {name[:80]!r} must have 1 to 200 characters once escaped for a file name",
            hint="choose another name; in UTF-8, each byte that is no ASCII letter, digit, '_', '-' or '~' takes three",
        )
    return escaped
