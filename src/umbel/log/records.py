"""Records of the ingest log: the binary format of one accepted request.

A record is a header of 32 bytes, the digest of its batch id if it has one (16 bytes), and the payload:

    crc32 · payload length · rows · flags · received at (µs) · number of its first row · [digest] · payload

The checksum covers everything after itself, so a write that was cut anywhere is detected. The upper 24 bits of the flags are
a checksum of the header alone: if it matches, the extent of a record is known although its payload is damaged. After
a damaged header the next record is found by trying every byte offset. Records without a header checksum were written
by umbel 0.1. A record some of whose rows were erased says so in its flags: they are `null` in its payload, which is as long as
it was.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import orjson

_HEADER = struct.Struct("<IIIIqQ")
_BODY = struct.Struct("<IIIqQ")
_CRC = struct.Struct("<I")
_HAS_ID, _HAS_CHECK, _IS_REDACTED = 1, 2, 4
_CHECK = 0xFFFFFF00
_LOOKED_AT = 1 << 20

HEADER_BYTES = _HEADER.size
DIGEST_BYTES = 16
MAX_PAYLOAD = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch of rows to append.

    Args:
        payload: JSON bytes, a list of row objects as posted.
        rows: number of rows in the list.
        received_at: microseconds since the epoch.
        digest: `digest_of` the client's batch id; None without one.
        is_redacted: True if rows that are `null` were erased.
    """

    payload: bytes
    rows: int
    received_at: int
    digest: bytes | None = None
    is_redacted: bool = False


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record as found in a segment.

    Args:
        offset: of its first byte in the file.
        size: in bytes, including the header.
        row: the log-wide number of its first row.
        entry: the batch that was appended.
    """

    offset: int
    size: int
    row: int
    entry: Entry

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class Receipt:
    """The position of an accepted batch of rows in the log.

    Args:
        segment: number of the segment file.
        offset: of its record in the file.
        row: log-wide number of its first row.
        rows: number of rows.
        is_duplicate: True if an earlier batch had the same id; the position is then that of the earlier one.
        has_other_rows: True if that earlier batch has other rows: these are not stored.
    """

    segment: int
    offset: int
    row: int
    rows: int
    is_duplicate: bool = False
    has_other_rows: bool = False

    def repeated(self) -> Receipt:
        """Return the response to a repetition of the batch."""
        return replace(self, is_duplicate=True)


def digest_of(batch_id: str) -> bytes:
    """Return the 16-byte digest of a batch id."""
    return blake2b(batch_id.encode(), digest_size=DIGEST_BYTES).digest()


def are_same_rows(earlier: Entry, later: Entry) -> bool:
    """Return True if two batches have the same rows, however they are written.

    An erased row of the earlier one is the same as any.
    """
    if earlier.payload == later.payload:
        return True
    if earlier.rows != later.rows:
        return False
    try:
        before, after = orjson.loads(earlier.payload), orjson.loads(later.payload)
    except ValueError:
        return False
    return all(old == new or (old is None and earlier.is_redacted) for old, new in zip(before, after, strict=True))


@dataclass(frozen=True, slots=True)
class Gap:
    """A byte range of a segment without a readable record.

    Args:
        offset: of its first byte in the file.
        size: bytes up to the next record, or to the end of the range read.
        rows: number of rows in it; None if its header is damaged, too.
    """

    offset: int
    size: int
    rows: int | None = None

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self.offset + self.size


def pack(entry: Entry, row: int) -> bytes:
    """Return the bytes of a record whose first row has number `row`."""
    flags = _HAS_CHECK if entry.digest is None else _HAS_CHECK | _HAS_ID
    flags |= _IS_REDACTED if entry.is_redacted else 0
    digest = entry.digest or b""
    check = _check(len(entry.payload), entry.rows, flags, entry.received_at, row)
    body = _BODY.pack(len(entry.payload), entry.rows, flags | check, entry.received_at, row) + digest
    return b"".join((_CRC.pack(zlib.crc32(entry.payload, zlib.crc32(body))), body, entry.payload))


def _check(length: int, rows: int, flags: int, received_at: int, row: int) -> int:
    return zlib.crc32(_BODY.pack(length, rows, flags, received_at, row)) & _CHECK


def size_of(entry: Entry) -> int:
    """Return the size in bytes of an entry's record."""
    return HEADER_BYTES + (0 if entry.digest is None else DIGEST_BYTES) + len(entry.payload)


def unpack(buffer: bytes | memoryview, at: int, offset: int) -> LogRecord | None:
    """Return the record that starts at `buffer[at]`, None if it is cut or damaged.

    Args:
        buffer: bytes of the segment.
        at: offset of the record in the buffer.
        offset: its offset in the segment.
    """
    if len(buffer) - at < HEADER_BYTES:
        return None
    crc, length, rows, flags, received_at, row = _HEADER.unpack_from(buffer, at)
    start = at + HEADER_BYTES + (DIGEST_BYTES if flags & _HAS_ID else 0)
    end = start + length
    if end > len(buffer) or zlib.crc32(memoryview(buffer)[at + _CRC.size : end]) != crc:
        return None
    digest = bytes(buffer[at + HEADER_BYTES : start]) if flags & _HAS_ID else None
    is_redacted = bool(flags & _HAS_CHECK and flags & _IS_REDACTED)
    return LogRecord(offset, end - at, row, Entry(bytes(buffer[start:end]), rows, received_at, digest, is_redacted))


def walk(buffer: bytes | memoryview, offset: int) -> Iterator[LogRecord]:
    """Yield the whole records at the start of `buffer`, up to the first damaged one.

    A record that is cut counts as damaged.

    Args:
        buffer: bytes of a segment from the start of a record.
        offset: of the buffer in the segment.
    """
    at = 0
    while (record := unpack(buffer, at, offset + at)) is not None:
        yield record
        at += record.size


def walk_past_damage(buffer: bytes | memoryview, offset: int, row: int) -> Iterator[LogRecord | Gap]:
    """Yield all whole records of `buffer`, and the gaps between them.

    Args:
        buffer: bytes of a segment from the start of a record.
        offset: of the buffer in the segment.
        row: the number of the next row; a record after damage has none below it.
    """
    at = 0
    while at < len(buffer):
        record = unpack(buffer, at, offset + at)
        if record is not None:
            at, row = at + record.size, record.row + record.entry.rows
            yield record
            continue
        found = head(bytes(buffer[at : at + HEADER_BYTES + DIGEST_BYTES]), offset + at)
        if found is not None and found.is_checked:
            end, rows = min(at + found.size, len(buffer)), found.rows
            row = found.row + found.rows
        else:
            end, rows = _next_record(buffer, at + 1, row), None
        yield Gap(offset + at, end - at, rows)
        at = end


def _next_record(buffer: bytes | memoryview, at: int, row: int) -> int:
    """Return the offset of the next whole record with rows from `row` on.

    The search starts at offset `at`.

    The end of the buffer if there is none.
    """
    last = len(buffer) - HEADER_BYTES
    while at <= last:
        count = min(_LOOKED_AT, last + 1 - at)
        for found in at + _likely(buffer, at, count, row):
            start = bytes(buffer[found : found + HEADER_BYTES + DIGEST_BYTES])
            if head(start, 0) is not None and unpack(buffer, int(found), 0) is not None:
                return int(found)
        at += count
    return len(buffer)


def _likely(buffer: bytes | memoryview, at: int, count: int, row: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Return the offsets among the next bytes at which a header may start.

    They are selected by the header's fields, vectorised.
    """

    def fields(kind: str, behind: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        return np.ndarray((count,), kind, buffer, at + behind, (1,))

    lengths, flags = fields("<u4", 4), fields("<u4", 12)
    room = np.arange(len(buffer) - at - HEADER_BYTES, len(buffer) - at - HEADER_BYTES - count, -1)
    is_known = (flags <= _HAS_ID) | (flags & _HAS_CHECK > 0)
    return np.flatnonzero(is_known & (lengths <= room) & (fields("<u8", 24) >= row))


@dataclass(frozen=True, slots=True)
class Head:
    """A record's header without its payload, for finding record boundaries cheaply."""

    offset: int
    size: int
    rows: int
    row: int
    received_at: int
    digest: bytes | None
    is_checked: bool

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self.offset + self.size


def head(buffer: bytes, offset: int) -> Head | None:
    """Parse the head of the record at `offset`; None if it is cut or damaged.

    Args:
        buffer: the first bytes of the record.
        offset: of the record in the segment.
    """
    if len(buffer) < HEADER_BYTES:
        return None
    _, length, rows, flags, received_at, row = _HEADER.unpack_from(buffer)
    size = HEADER_BYTES + (DIGEST_BYTES if flags & _HAS_ID else 0)
    is_checked = flags > _HAS_ID
    if is_checked and flags != (flags & 0xFF) | _check(length, rows, flags & 0xFF, received_at, row):
        return None
    return Head(offset, size + length, rows, row, received_at, buffer[HEADER_BYTES:size] or None, is_checked)
