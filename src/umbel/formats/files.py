"""File formats: split a file into pieces and read the rows of a piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from umbel.formats.avro_files import AvroFormat
from umbel.formats.chunks import LARGE_CHUNK_BYTES, chunks, last_line, next_line
from umbel.formats.declarations import CSV
from umbel.formats.delimited import end_of_record, open_delimited
from umbel.formats.json_lines import JsonLines, lines_of
from umbel.formats.parquet import ParquetFormat
from umbel.formats.pieces import FileFormat, FilePart, FileRows, Piece, malformed, with_absent
from umbel.formats.raw_batch import TextRows
from umbel.formats.stored import StoredFile, is_packed
from umbel.formats.text_types import spelled
from umbel.types.dtype import DType
from umbel.types.raw import Raw

PACKED_FACTOR = 8
"""Estimated ratio of uncompressed to compressed size."""

_BOM = b"\xef\xbb\xbf"


class JsonFormat:
    """One JSON object per line."""

    def pieces(self, stored: StoredFile, begin: int, size: int) -> Iterator[Piece]:
        whole = stored.size()
        if is_packed(stored):
            yield Piece(0, None, whole * PACKED_FACTOR, is_last=True)
            return
        # Cut anywhere: a piece has the lines that start in it, so that planning need not read the file.
        for start in range(begin, whole, size):
            end = min(start + size, whole)
            yield Piece(start, end, end - start, is_last=end == whole)

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        reader = JsonLines(requested, exact=exact)
        stop = None if part.end is None else next_line(part.stored, part.end)
        begin = next_line(part.stored, part.begin)
        for chunk in chunks(part.stored, begin, stop, last_line, LARGE_CHUNK_BYTES):
            if chunk.error is not None:
                yield malformed(part, chunk)
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

    def pieces(self, stored: StoredFile, begin: int, size: int) -> Iterator[Piece]:
        whole = stored.size()
        if is_packed(stored):
            yield Piece(0, None, whole * PACKED_FACTOR, is_last=True)
            return
        while begin < whole:
            least = (begin // size + 1) * size
            end = whole if least >= whole else end_of_record(stored, begin, least)
            yield Piece(begin, end, end - begin, is_last=end >= whole)
            begin = end

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        for reader, chunk in open_delimited(part.stored, self.form, part.begin, part.end):
            if chunk.error is not None:
                yield malformed(part, chunk)
                continue
            raw = spelled(with_absent(reader.read(chunk.data), requested), requested)
            yield _rows(raw, TextRows(part.name, chunk.offset, chunk.data, reader.records), 0)


def format_of(declared: str | CSV) -> FileFormat:
    """Return the format declared by a connector."""
    if isinstance(declared, CSV):
        return DelimitedFormat(declared)
    named: dict[str, FileFormat] = {"json": JsonFormat(), "parquet": ParquetFormat(), "avro": AvroFormat()}
    return named[declared]


def _rows(raw: Raw, source: TextRows, first: int) -> FileRows:
    retained = 0 if first else len(source.data)
    return FileRows(raw, lambda row: source.where(first + row), lambda row: source.text(first + row), retained)
