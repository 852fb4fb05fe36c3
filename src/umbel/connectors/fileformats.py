"""What is in a file: how each format is cut into pieces, and how a piece is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import polars as pl

from umbel.connectors.chunks import Chunk, chunks, last_line, next_line
from umbel.connectors.delimited import end_of_record, open_delimited, records_of
from umbel.connectors.formats import CSV
from umbel.connectors.jsonlines import JsonLines, lines_of
from umbel.connectors.rawbatch import TextRows, as_bytes, lost
from umbel.connectors.texttypes import spelled
from umbel.types.dtype import DType, nulls
from umbel.types.raw import Raw, rejects

GZIP_FACTOR = 8
"""How much larger a compressed file is taken to be than it looks."""

PARQUET_ROWS = 262_144
"""Rows of a Parquet file that are held at once."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file.

    Args:
        begin: where it starts, in bytes or rows as the format has it.
        end: where it stops; None is the end of the file.
        weight: about how many bytes there are to read.
        is_last: whether nothing follows it.
    """

    begin: int
    end: int | None
    weight: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a file that is about to be read.

    Args:
        path: the file.
        name: what it is called in messages; unique within its source.
        begin: as in the piece.
        end: as in the piece.
    """

    path: Path
    name: str
    begin: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a file, with the way back to their source.

    Args:
        raw: the rows.
        where: the place of a row, for people.
        text: the bytes of a row.
    """

    raw: Raw
    where: Callable[[int], str]
    text: Callable[[int], bytes]


class FileFormat(Protocol):
    """How files of one kind are read."""

    def pieces(self, path: Path, begin: int, size: int) -> Iterator[Piece]:
        """Yield the pieces of a file from a place on, each of about `size` bytes."""

    def read(self, part: Part, wanted: Mapping[str, DType], *, exact: bool) -> Iterator[Rows]:
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

    def read(self, part: Part, wanted: Mapping[str, DType], *, exact: bool) -> Iterator[Rows]:
        reader = JsonLines(wanted, exact=exact)
        stop = None if part.end is None else next_line(part.path, part.end)
        for chunk in chunks(part.path, next_line(part.path, part.begin), stop, last_line):
            if chunk.fault is not None:
                yield _faulty(part, chunk)
                continue
            data = chunk.data.removeprefix(_BOM) if chunk.offset == 0 else chunk.data
            source, first = TextRows(part.name, chunk.offset + len(chunk.data) - len(data), data, lines_of), 0
            for raw in reader.read(data):
                yield _rows(raw, source, first)
                first += raw.frame.height


@dataclass(frozen=True, slots=True)
class DelimitedFormat:
    """Delimited text, `form` says how."""

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

    def read(self, part: Part, wanted: Mapping[str, DType], *, exact: bool) -> Iterator[Rows]:
        for reader, chunk in open_delimited(part.path, self.form, part.begin, part.end):
            if chunk.fault is not None:
                yield _faulty(part, chunk)
                continue
            raw = spelled(_whole(reader.read(chunk.data), wanted), wanted)
            yield _rows(raw, TextRows(part.name, chunk.offset, chunk.data, records_of), 0)


class ParquetFormat:
    """Parquet: pieces are ranges of rows, along the row groups."""

    def pieces(self, path: Path, begin: int, size: int) -> Iterator[Piece]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        whole = path.stat().st_size
        if not whole:
            return
        try:
            facts = pq.read_metadata(path)
        except (pa.ArrowException, OSError):
            yield Piece(0, None, whole, is_last=True)  # whoever opens it says what is wrong
            return
        groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
        for start, end, weight in _merged([(group.num_rows, group.total_byte_size) for group in groups], size):
            if end > begin:
                yield Piece(start, end, weight, is_last=end == facts.num_rows)

    def read(self, part: Part, wanted: Mapping[str, DType], *, exact: bool) -> Iterator[Rows]:
        if part.path.stat().st_size == 0:
            return
        try:
            file = pl.scan_parquet(part.path)
            present = [name for name in file.collect_schema().names() if name in wanted or not exact]
            stop = file.select(pl.len()).collect().item() if part.end is None else part.end
            for start in range(part.begin, stop, PARQUET_ROWS):
                height = min(PARQUET_ROWS, stop - start)
                rows = file.select(present).slice(start, height).collect() if present else pl.DataFrame(height=height)
                yield _framed(part, _whole(Raw(rows, rejects({})), wanted), start)
        except pl.exceptions.PolarsError as error:
            yield _faulty(part, Chunk(0, b"", f"not a readable Parquet file: {error}"))


def format_of(declared: str | CSV) -> FileFormat:
    """Return the format that a connector declares."""
    if isinstance(declared, CSV):
        return DelimitedFormat(declared)
    named: dict[str, FileFormat] = {"json": JsonFormat(), "parquet": ParquetFormat()}
    return named[declared]


def _merged(groups: list[tuple[int, int]], size: int) -> Iterator[tuple[int, int, int]]:
    """Yield neighbouring row groups together, up to a size: first row, row behind the last, bytes."""
    start = row = weight = 0
    for number, (rows, bytes_) in enumerate(groups, 1):
        row, weight = row + rows, weight + bytes_
        if weight >= size or number == len(groups):
            yield start, row, weight
            start, weight = row, 0


def _rows(raw: Raw, source: TextRows, first: int) -> Rows:
    return Rows(raw, lambda row: source.where(first + row), lambda row: source.text(first + row))


def _faulty(part: Part, chunk: Chunk) -> Rows:
    assert chunk.fault is not None
    return Rows(lost(chunk.fault), lambda _: f"{part.name}: byte {chunk.offset}", lambda _: chunk.data)


def _whole(raw: Raw, wanted: Mapping[str, DType]) -> Raw:
    """Return rows with null in the columns that a file may lack."""
    absent = [name for name, dtype in wanted.items() if dtype.is_optional and name not in raw.frame.columns]
    height = raw.frame.height
    return Raw(raw.frame.with_columns(nulls(height, pl.Null()).alias(name) for name in absent), raw.rejects)


def _framed(part: Part, raw: Raw, start: int) -> Rows:
    def text(row: int) -> bytes:
        return as_bytes(raw.frame.row(row, named=True))

    return Rows(raw, lambda row: f"{part.name}: row {start + row}", text)
