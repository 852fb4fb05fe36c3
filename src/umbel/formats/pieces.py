"""Pieces of files, and the interface of file formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from umbel.formats.chunks import Chunk
from umbel.formats.raw_batch import as_bytes, lost
from umbel.formats.stored import StoredFile
from umbel.types.dtype import DType, nulls
from umbel.types.raw import Raw
from umbel.types.years import row_of


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file.

    Args:
        begin: its start, in bytes or rows depending on the format.
        end: its end, exclusive; None is the end of the file.
        weight: the approximate number of bytes to read.
        is_last: whether it is the last piece of the file.
    """

    begin: int
    end: int | None
    weight: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class FilePart:
    """A piece of a file to read.

    Args:
        stored: the file.
        name: its name in messages, printable; unique within its source.
        begin: as in the piece.
        end: as in the piece.
    """

    stored: StoredFile
    name: str
    begin: int
    end: int | None


@dataclass(frozen=True, slots=True)
class FileRows:
    """A batch of rows of a file, with access to their location and bytes.

    Args:
        raw: the rows.
        where: returns the location of a row, human-readable.
        text: returns the bytes of a row.
        retained: how many bytes of the file `text` retains, if they are not those of a batch before.
    """

    raw: Raw
    where: Callable[[int], str]
    text: Callable[[int], bytes]
    retained: int = 0


class FileFormat(Protocol):
    """A file format: splits files into pieces and reads them."""

    def pieces(self, stored: StoredFile, begin: int, size: int) -> Iterator[Piece]:
        """Yield the pieces of a file from an offset on, each of about `size` bytes."""

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        """Yield the rows of a piece."""


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
