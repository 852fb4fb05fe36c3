"""Reading of a file in chunks of whole records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from umbel.formats.stored import DamagedError, StoredFile, is_packed
from umbel.formats.unpacking import unpacked_bytes

MAX_ROW = 8 << 20
"""Maximum length of a row in bytes; a longer one is rejected."""

RAW_RETAINED = 64 << 10
"""Bytes retained of a row rejected unread."""

COMPRESSED = (b"\x1f\x8b", b"x\x01", b"x\x9c", b"x\xda", b"\x28\xb5\x2f\xfd")
"""Beginnings of what Polars takes for compressed by gzip, zlib or zstd, and decompresses unasked."""

CHUNK_BYTES = 4 << 20
"""Bytes of a chunk where little memory is to be taken."""

LARGE_CHUNK_BYTES = 16 << 20
"""Bytes of a chunk where each has costs of its own: JSON lines of 4 MiB at a time took 1.15 times as long."""

LastBreak = Callable[[bytes], int]
"""Returns the length of the whole records, in bytes; 0 when none is complete."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of bytes of a file.

    Args:
        offset: their first byte, in the uncompressed file.
        data: whole records; for a malformed piece its first bytes.
        error: the reason the piece is malformed, None for records.
    """

    offset: int
    data: bytes
    error: str | None = None


def chunks(
    stored: StoredFile, begin: int, end: int | None, last_break: LastBreak, size: int | None = None
) -> Iterator[Chunk]:
    """Yield the bytes between two offsets in chunks of whole records.

    Args:
        stored: the file; one with a name in `.gz` or `.zst` is decompressed, and the offsets are of what comes of it.
        begin: the first byte: the start of a record.
        end: the byte behind the last: the end of a record; None for the end of the file.
        last_break: finds the end of the last whole record.
        size: about how many bytes a chunk has, before its last record is cut; None for `CHUNK_BYTES`.
    """
    pieces = unpacked_bytes(stored, begin, end) if is_packed(stored) else _plain(stored, begin, end)
    yield from _cut(_gathered(pieces, size or CHUNK_BYTES), begin, last_break)


def last_line(data: bytes) -> int:
    """Return the length of the whole lines, in bytes."""
    return data.rfind(b"\n") + 1


class LineEnds:
    """Finds the end of a line in a file that is read in pieces."""

    def first(self, data: bytes, least: int) -> int:
        """Return the first end of a line at or behind an offset, 0 for none.

        Args:
            data: the next bytes of the file.
            least: the offset in them.
        """
        return data.find(b"\n", max(least - 1, 0)) + 1


def next_line(stored: StoredFile, offset: int) -> int:
    """Return the start of the first line at or behind an offset."""
    if offset == 0:
        return 0
    with stored.open() as file:
        file.seek(offset - 1)
        while line := file.readline(CHUNK_BYTES):
            if line.endswith(b"\n"):
                break
        return file.tell()


def _plain(stored: StoredFile, begin: int, end: int | None) -> Iterator[bytes]:
    # Not a whole chunk at once: each read is a request to a bucket, which has to be answered in time over a slow line, too.
    with stored.open() as file:
        file.seek(begin)
        left = (1 << 62) if end is None else end - begin
        while piece := file.read(min(CHUNK_BYTES, left)):
            yield piece
            left -= len(piece)


def _gathered(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Join small pieces; all that come before an error, such as damage, are yielded."""
    found, length = list[bytes](), 0
    try:
        for piece in pieces:
            found.append(piece)
            length += len(piece)
            if length >= size:
                yield b"".join(found)
                found, length = [], 0
    except Exception:
        yield b"".join(found)
        raise
    yield b"".join(found)


def _cut(pieces: Iterator[bytes], offset: int, last_break: LastBreak) -> Iterator[Chunk]:
    unread, error = b"", None
    try:
        for piece in pieces:
            unread += piece
            whole = last_break(unread)
            if not whole and len(unread) > MAX_ROW:
                whole = last_line(unread)
            if whole:
                yield Chunk(offset, unread[:whole])
            elif len(unread) > MAX_ROW:
                chunk, unread, whole = _skip_row(unread, pieces, offset)
                yield chunk
                offset += whole
                continue
            unread, offset = unread[whole:], offset + whole
    except DamagedError as damage:
        error = str(damage)
    whole = len(unread) if error is None else last_break(unread)
    if whole:
        yield Chunk(offset, unread[:whole])
    if error is not None:
        yield Chunk(offset + whole, unread[whole:][:RAW_RETAINED], error)


def _skip_row(unread: bytes, pieces: Iterator[bytes], offset: int) -> tuple[Chunk, bytes, int]:
    """Skip an oversized row; return an error chunk, the remaining bytes, the row's size.

    The remaining bytes are those of the last piece behind the row.
    """
    start, size, rest = unread[:RAW_RETAINED], len(unread), b""
    for piece in pieces:
        line = piece.find(b"\n") + 1
        size += line or len(piece)
        if line:
            rest = piece[line:]
            break
    return Chunk(offset, start, f"a row of {size} bytes is longer than {MAX_ROW}"), rest, size
