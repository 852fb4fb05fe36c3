"""Bytes of a file, cut into chunks of whole records."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_ROW = 8 << 20
"""Bytes of the longest row that is read; a longer one is rejected."""

RAW_KEPT = 64 << 10
"""Bytes kept of what is rejected unread."""

CHUNK_BYTES = 4 << 20
_PACKED_BYTES = 1 << 20

LastBreak = Callable[[bytes], int]
"""Returns how many of the bytes are whole records, 0 when none is complete."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some bytes of a file.

    Args:
        offset: where they start, in the uncompressed file.
        data: whole records; of a faulty piece its first bytes.
        fault: what is wrong with the piece, None for records.
    """

    offset: int
    data: bytes
    fault: str | None = None


class _Damaged(Exception):
    """A compressed file cannot be read further."""


def chunks(path: Path, begin: int, end: int | None, last_break: LastBreak) -> Iterator[Chunk]:
    """Yield what is between two offsets in chunks of whole records.

    Args:
        path: the file; a name in `.gz` is decompressed, from its start to its end.
        begin: where to start: at the start of a record.
        end: where to stop; None at the end of the file.
        last_break: finds the end of the last whole record.
    """
    with path.open("rb") as file:
        pieces = _gunzip(file) if path.suffix == ".gz" else _plain(file, begin, end)
        yield from _cut(pieces, begin, last_break)


def last_line(data: bytes) -> int:
    """Return how many of the bytes are whole lines."""
    return data.rfind(b"\n") + 1


def next_line(path: Path, offset: int) -> int:
    """Return where the first line starts that starts at an offset or behind it."""
    if offset == 0:
        return 0
    with path.open("rb") as file:
        file.seek(offset - 1)
        while line := file.readline(CHUNK_BYTES):
            if line.endswith(b"\n"):
                break
        return file.tell()


def _plain(file: BinaryIO, begin: int, end: int | None) -> Iterator[bytes]:
    file.seek(begin)
    left = (1 << 62) if end is None else end - begin
    while piece := file.read(min(CHUNK_BYTES, left)):
        yield piece
        left -= len(piece)


def _gunzip(file: BinaryIO) -> Iterator[bytes]:
    # Not gzip.open: it loses what it had decompressed in the call that meets the damage.
    decoder = None
    while packed := file.read(_PACKED_BYTES):
        while packed:
            decoder = decoder or zlib.decompressobj(wbits=31)
            try:
                plain = decoder.decompress(packed, CHUNK_BYTES)
            except zlib.error as error:
                raise _Damaged(f"the gzip data is damaged: {error}") from error
            if plain:
                yield plain
            packed = decoder.unconsumed_tail
            if decoder.eof:
                packed, decoder = decoder.unused_data.lstrip(b"\0"), None
    if decoder is not None:
        raise _Damaged("the gzip data breaks off before its end")


def _cut(pieces: Iterator[bytes], offset: int, last_break: LastBreak) -> Iterator[Chunk]:
    held, fault = b"", None
    try:
        for piece in pieces:
            held += piece
            whole = last_break(held)
            if not whole and len(held) > MAX_ROW:
                whole = last_line(held)
            if whole:
                yield Chunk(offset, held[:whole])
            elif len(held) > MAX_ROW:
                chunk, held, whole = _skip_row(held, pieces, offset)
                yield chunk
                offset += whole
                continue
            held, offset = held[whole:], offset + whole
    except _Damaged as damage:
        fault = str(damage)
    whole = len(held) if fault is None else last_break(held)
    if whole:
        yield Chunk(offset, held[:whole])
    if fault is not None:
        yield Chunk(offset + whole, held[whole:][:RAW_KEPT], fault)


def _skip_row(held: bytes, pieces: Iterator[bytes], offset: int) -> tuple[Chunk, bytes, int]:
    """Read to the end of a row that is too long; return it as a fault, what follows it, and its size."""
    start, size, rest = held[:RAW_KEPT], len(held), b""
    for piece in pieces:
        line = piece.find(b"\n") + 1
        size += line or len(piece)
        if line:
            rest = piece[line:]
            break
    return Chunk(offset, start, f"a row of {size} bytes is longer than {MAX_ROW}"), rest, size
