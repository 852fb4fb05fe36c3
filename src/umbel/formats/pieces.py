"""Pieces of files, and the interface of file formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Protocol

import polars as pl

from umbel.formats.chunks import Chunk
from umbel.formats.raw_batch import as_bytes, lost
from umbel.formats.stored import StoredFile
from umbel.types.dtype import DType, nulls
from umbel.types.raw import Raw
from umbel.types.years import row_of

DIVIDED = 2
"""A group of rows more than so many times as large as a piece should be is divided: each piece decodes the rows before it."""
LARGE_RATIO = 32
"""Hardly any rows are compressed better: a file that fits into a piece even so is not opened to plan it."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The place of a position in the bytes of a file.

    Args:
        byte: about how many stored bytes are before it; of a file of blocks, the end of the block before that of the position, 0
            for the first block.
        skipped: rows of its block before the position.
    """

    byte: int = 0
    skipped: int = 0


START = Anchor()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file.

    Args:
        begin: its start, in bytes or rows depending on the format; of a compressed text, in uncompressed bytes.
        end: its end, exclusive; None is the end of the file.
        weight: the approximate number of bytes to read, uncompressed.
        is_last: whether it is the last piece of the file.
        anchor: the place of its start.
        rest: the place of its end.
    """

    begin: int
    end: int | None
    weight: int
    is_last: bool
    anchor: Anchor = START
    rest: Anchor = START


@dataclass(frozen=True, slots=True)
class FilePart:
    """A piece of a file to read.

    Args:
        stored: the file.
        name: its name in messages, printable; unique within its source.
        begin: as in the piece.
        end: as in the piece.
        anchor: as in the piece.
    """

    stored: StoredFile
    name: str
    begin: int
    end: int | None
    anchor: Anchor = START


@dataclass(frozen=True, slots=True)
class FileRows:
    """A batch of rows of a file, with access to their location and bytes.

    Args:
        raw: the rows.
        where: returns the location of a row, human-readable.
        text: returns the bytes of a row.
        retained: how many bytes of the file `text` retains, if they are not those of a batch before.
        lost: how many rows behind these cannot be read; they are counted as others.
    """

    raw: Raw
    where: Callable[[int], str]
    text: Callable[[int], bytes]
    retained: int = 0
    lost: int = 0


class FileFormat(Protocol):
    """A file format: splits files into pieces and reads them."""

    counts_rows: ClassVar[bool]
    """True if positions in a file are numbers of rows, False for bytes."""

    def pieces(self, stored: StoredFile, begin: int, size: int, anchor: Anchor = START) -> Iterator[Piece]:
        """Yield the pieces of a file from a position on, each of about `size` bytes.

        Args:
            stored: the file.
            begin: where the first piece begins.
            size: uncompressed bytes.
            anchor: the place of the beginning.
        """

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        """Yield the rows of a piece."""


def unopened(stored: StoredFile, begin: int, anchor: Anchor, size: int, ratio: int) -> Piece | None:
    """Return the rest of a compressed file, None if it may be too large.

    Args:
        stored: the file, which is not opened.
        begin: the position.
        anchor: its place.
        size: the largest number of uncompressed bytes.
        ratio: the usual ratio of uncompressed to compressed size.
    """
    whole = stored.size()
    if whole * LARGE_RATIO > size:
        return None
    return Piece(begin, None, max(1, (whole - anchor.byte) * ratio), is_last=True, anchor=anchor)


def evenly(begin: int, end: int, weight: int, pieces: int) -> Iterator[tuple[int, int, int]]:
    """Yield a range of rows in ranges of about the same size, with their bytes."""
    pieces = min(max(pieces, 1), max(end - begin, 1))
    for start, stop in pairwise(begin + (end - begin) * number // pieces for number in range(pieces + 1)):
        if stop > start:
            yield start, stop, max(1, weight // pieces)


def malformed(part: FilePart, chunk: Chunk) -> FileRows:
    """Return the rejected record of a malformed chunk."""
    assert chunk.error is not None
    return FileRows(lost(chunk.error), lambda _: f"{part.name}: byte {chunk.offset}", lambda _: chunk.data)


def unreadable(part: FilePart, reason: str, row: int) -> FileRows:
    """Return the rejected record of a part that cannot be read on from a row."""
    where = f"{part.name}: byte 0" if row == 0 else f"{part.name}: row {row}"
    return FileRows(lost(reason), lambda _: where, lambda _: b"")


def with_absent(raw: Raw, requested: Mapping[str, DType]) -> Raw:
    """Return rows with the absent optional columns added, filled with null."""
    absent = [name for name, dtype in requested.items() if dtype.is_optional and name not in raw.frame.columns]
    height = raw.frame.height
    return Raw(raw.frame.with_columns(nulls(height, pl.Null()).alias(name) for name in absent), raw.rejects)


def framed(part: FilePart, raw: Raw, start: int) -> FileRows:
    """Return rows of a typed file, from a row number on."""

    def text(row: int) -> bytes:
        return as_bytes(row_of(raw.frame, row))

    return FileRows(raw, lambda row: f"{part.name}: row {start + row}", text)
