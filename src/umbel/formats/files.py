"""File formats: split a file into pieces and read the rows of a piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import polars as pl

from umbel.formats.chunks import Chunk, chunks, last_line, next_line
from umbel.formats.declarations import CSV
from umbel.formats.delimited import end_of_record, open_delimited
from umbel.formats.json_lines import JsonLines, lines_of
from umbel.formats.raw_batch import TextRows, as_bytes, lost
from umbel.formats.text_types import spelled
from umbel.types.dtype import DType, nulls
from umbel.types.raw import Raw, rejects

GZIP_FACTOR = 8
"""Estimated ratio of uncompressed to compressed size."""

PARQUET_ROWS = 262_144
"""Rows of a Parquet file in memory at once."""

_BOM = b"\xef\xbb\xbf"


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
        path: the file.
        name: its name in messages; unique within its source.
        begin: as in the piece.
        end: as in the piece.
    """

    path: Path
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
    """

    raw: Raw
    where: Callable[[int], str]
    text: Callable[[int], bytes]


class FileFormat(Protocol):
    """A file format: splits files into pieces and reads them."""

    def pieces(self, path: Path, begin: int, size: int) -> Iterator[Piece]:
        """Yield the pieces of a file from an offset on, each of about `size` bytes."""

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        """Yield the rows of a piece."""


class JsonFormat:
    """One JSON object per line."""

    def pieces(self, path: Path, begin: int, size: int) -> Iterator[Piece]:
        whole = path.stat().st_size
        if path.suffix == ".gz":
            yield Piece(0, None, whole * GZIP_FACTOR, is_last=True)
            return
        # Cut anywhere: a piece has the lines that start in it, so that planning need not read the file.
        for start in range(begin, whole, size):
            end = min(start + size, whole)
            yield Piece(start, end, end - start, is_last=end == whole)

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        reader = JsonLines(requested, exact=exact)
        stop = None if part.end is None else next_line(part.path, part.end)
        for chunk in chunks(part.path, next_line(part.path, part.begin), stop, last_line):
            if chunk.error is not None:
                yield _malformed(part, chunk)
                continue
            data = chunk.data.removeprefix(_BOM) if chunk.offset == 0 else chunk.data
            source, first = TextRows(part.name, chunk.offset + len(chunk.data) - len(data), data, lines_of), 0
            for raw in reader.read(data):
                yield _rows(raw, source, first)
                first += raw.frame.height


@dataclass(frozen=True, slots=True)
class DelimitedFormat:
    """Delimited text, as declared by `form`."""

    form: CSV

    def pieces(self, path: Path, begin: int, size: int) -> Iterator[Piece]:
        whole = path.stat().st_size
        if path.suffix == ".gz":
            yield Piece(0, None, whole * GZIP_FACTOR, is_last=True)
            return
        while begin < whole:
            end = end_of_record(path, begin, (begin // size + 1) * size)
            yield Piece(begin, end, end - begin, is_last=end >= whole)
            begin = end

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        for reader, chunk in open_delimited(part.path, self.form, part.begin, part.end):
            if chunk.error is not None:
                yield _malformed(part, chunk)
                continue
            raw = spelled(_whole(reader.read(chunk.data), requested), requested)
            yield _rows(raw, TextRows(part.name, chunk.offset, chunk.data, reader.records), 0)


class ParquetFormat:
    """Parquet: pieces are ranges of rows, aligned to row groups."""

    def pieces(self, path: Path, begin: int, size: int) -> Iterator[Piece]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        whole = path.stat().st_size
        if not whole:
            return
        try:
            facts = pq.read_metadata(path)
        except (pa.ArrowException, OSError):
            yield Piece(0, None, whole, is_last=True)  # the reader of the piece reports the error
            return
        groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
        for start, end, weight in _merged([(group.num_rows, group.total_byte_size) for group in groups], size):
            if end > begin:
                yield Piece(start, end, weight, is_last=end == facts.num_rows)

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        if part.path.stat().st_size == 0:
            return
        try:
            file = pl.scan_parquet(part.path)
            present = [name for name in file.collect_schema().names() if name in requested or not exact]
            stop = file.select(pl.len()).collect().item() if part.end is None else part.end
            for start in range(part.begin, stop, PARQUET_ROWS):
                height = min(PARQUET_ROWS, stop - start)
                rows = file.select(present).slice(start, height).collect() if present else pl.DataFrame(height=height)
                yield _framed(part, _whole(Raw(rows, rejects({})), requested), start)
        except pl.exceptions.PolarsError as error:
            yield _malformed(part, Chunk(0, b"", f"not a readable Parquet file: {error}"))


def format_of(declared: str | CSV) -> FileFormat:
    """Return the format declared by a connector."""
    if isinstance(declared, CSV):
        return DelimitedFormat(declared)
    named: dict[str, FileFormat] = {"json": JsonFormat(), "parquet": ParquetFormat()}
    return named[declared]


def _merged(groups: list[tuple[int, int]], size: int) -> Iterator[tuple[int, int, int]]:
    """Yield neighbouring row groups merged up to a size.

    Yields the first row, the row behind the last, and the bytes.
    """
    start = row = weight = 0
    for number, (rows, bytes_) in enumerate(groups, 1):
        row, weight = row + rows, weight + bytes_
        if weight >= size or number == len(groups):
            yield start, row, weight
            start, weight = row, 0


def _rows(raw: Raw, source: TextRows, first: int) -> FileRows:
    return FileRows(raw, lambda row: source.where(first + row), lambda row: source.text(first + row))


def _malformed(part: FilePart, chunk: Chunk) -> FileRows:
    assert chunk.error is not None
    return FileRows(lost(chunk.error), lambda _: f"{part.name}: byte {chunk.offset}", lambda _: chunk.data)


def _whole(raw: Raw, requested: Mapping[str, DType]) -> Raw:
    """Return rows with the absent optional columns added, filled with null."""
    absent = [name for name, dtype in requested.items() if dtype.is_optional and name not in raw.frame.columns]
    height = raw.frame.height
    return Raw(raw.frame.with_columns(nulls(height, pl.Null()).alias(name) for name in absent), raw.rejects)


def _framed(part: FilePart, raw: Raw, start: int) -> FileRows:
    def text(row: int) -> bytes:
        return as_bytes(raw.frame.row(row, named=True))

    return FileRows(raw, lambda row: f"{part.name}: row {start + row}", text)
