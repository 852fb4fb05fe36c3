"""Records of the ingest log: how one accepted request stands in a segment file.

A record is a header of 32 bytes, the digest of its batch id when it has one (16 bytes), and the payload:

    crc32 · payload length · rows · flags · received at (µs) · number of its first row · [digest] · payload

The checksum covers everything behind itself, so a write that was cut anywhere is noticed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

_HEADER = struct.Struct("<IIIIqQ")
_BODY = struct.Struct("<IIIqQ")
_CRC = struct.Struct("<I")
_HAS_ID = 1

HEADER_BYTES = _HEADER.size
DIGEST_BYTES = 16
MAX_PAYLOAD = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """What is appended.

    Args:
        payload: JSON bytes, a list of row objects as posted.
        rows: how many rows the list has.
        received_at: microseconds since the epoch.
        digest: `digest_of` the client's batch id; None when it gave none.
    """

    payload: bytes
    rows: int
    received_at: int
    digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A record as found in a segment.

    Args:
        offset: where it starts in the file.
        size: bytes it takes, header included.
        row: the log-wide number of its first row.
        entry: what was appended.
    """

    offset: int
    size: int
    row: int
    entry: Entry

    @property
    def end(self) -> int:
        """Where the next record starts."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where an accepted batch of rows stands in the log.

    Args:
        segment: number of the segment file.
        offset: where its record starts in the file.
        row: log-wide number of its first row.
        rows: how many rows it has.
        is_duplicate: whether an earlier batch had the same id; the place is then that of the earlier one.
    """

    segment: int
    offset: int
    row: int
    rows: int
    is_duplicate: bool = False

    def repeated(self) -> Receipt:
        """Return the answer to a repetition of the batch."""
        return replace(self, is_duplicate=True)


def digest_of(batch_id: str) -> bytes:
    """Return the 16 bytes that stand for a batch id."""
    return blake2b(batch_id.encode(), digest_size=DIGEST_BYTES).digest()


def pack(entry: Entry, row: int) -> bytes:
    """Return the bytes of a record whose first row has number `row`."""
    flags = 0 if entry.digest is None else _HAS_ID
    body = _BODY.pack(len(entry.payload), entry.rows, flags, entry.received_at, row) + (entry.digest or b"")
    return b"".join((_CRC.pack(zlib.crc32(entry.payload, zlib.crc32(body))), body, entry.payload))


def size_of(entry: Entry) -> int:
    """Return the bytes `pack` makes of an entry."""
    return HEADER_BYTES + (0 if entry.digest is None else DIGEST_BYTES) + len(entry.payload)


def unpack(buffer: bytes | memoryview, at: int, offset: int) -> Record | None:
    """Return the record that starts at `buffer[at]`, None when it is cut or damaged.

    Args:
        buffer: bytes of the segment.
        at: where the record starts in the buffer.
        offset: where it starts in the segment.
    """
    if len(buffer) - at < HEADER_BYTES:
        return None
    crc, length, rows, flags, received_at, row = _HEADER.unpack_from(buffer, at)
    start = at + HEADER_BYTES + (DIGEST_BYTES if flags & _HAS_ID else 0)
    end = start + length
    if end > len(buffer) or zlib.crc32(memoryview(buffer)[at + _CRC.size : end]) != crc:
        return None
    digest = bytes(buffer[at + HEADER_BYTES : start]) if flags & _HAS_ID else None
    return Record(offset, end - at, row, Entry(bytes(buffer[start:end]), rows, received_at, digest))


def walk(buffer: bytes | memoryview, offset: int) -> Iterator[Record]:
    """Yield the whole records at the start of `buffer`, up to the first that is cut or damaged.

    Args:
        buffer: bytes of a segment from the start of a record.
        offset: where the buffer starts in the segment.
    """
    at = 0
    while (record := unpack(buffer, at, offset + at)) is not None:
        yield record
        at += record.size


@dataclass(frozen=True, slots=True)
class Head:
    """A record without its payload, for finding boundaries cheaply."""

    offset: int
    size: int
    rows: int
    row: int
    received_at: int
    digest: bytes | None

    @property
    def end(self) -> int:
        """Where the next record starts."""
        return self.offset + self.size


def head(buffer: bytes, offset: int) -> Head | None:
    """Return the head of the record at `offset`, from the first bytes of it; None when there are too few."""
    if len(buffer) < HEADER_BYTES:
        return None
    _, length, rows, flags, received_at, row = _HEADER.unpack_from(buffer)
    if not flags & _HAS_ID:
        return Head(offset, HEADER_BYTES + length, rows, row, received_at, None)
    if len(buffer) < HEADER_BYTES + DIGEST_BYTES:
        return None
    digest = buffer[HEADER_BYTES : HEADER_BYTES + DIGEST_BYTES]
    return Head(offset, HEADER_BYTES + DIGEST_BYTES + length, rows, row, received_at, digest)
