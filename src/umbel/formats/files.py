"""File formats: split a file into pieces and read the rows of a piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from umbel.formats.avro_files import AvroFormat
from umbel.formats.chunks import LARGE_CHUNK_BYTES, LineEnds, chunks, last_line, next_line
from umbel.formats.declarations import CSV
from umbel.formats.delimited import RecordEnds, end_of_record, open_delimited
from umbel.formats.json_lines import JsonLines, lines_of
from umbel.formats.parquet import ParquetFormat
from umbel.formats.pieces import START, Anchor, FileFormat, FilePart, FileRows, Piece, malformed, unopened, with_absent
from umbel.formats.raw_batch import TextRows
from umbel.formats.stored import DamagedError, StoredFile, is_packed
from umbel.formats.text_types import spelled
from umbel.formats.unpacking import UNPACKED_BYTES, Unpacked, unpacked
from umbel.types.dtype import DType
from umbel.types.raw import Raw

PACKED_FACTOR = 8
"""Estimated ratio of uncompressed to compressed size."""

_BOM = b"\xef\xbb\xbf"


class JsonFormat:
    """One JSON object per line."""

    counts_rows: ClassVar[bool] = False

    def pieces(self, stored: StoredFile, begin: int, size: int, anchor: Anchor = START) -> Iterator[Piece]:
        whole = stored.size()
        if is_packed(stored):
            yield from _packed_pieces(stored, begin, size, anchor, LineEnds)
            return
        # Cut anywhere: a piece has the lines that start in it, so that planning need not read the file.
        for start in range(begin, whole, size):
            end = min(start + size, whole)
            yield Piece(start, end, end - start, is_last=end == whole)

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        reader = JsonLines(requested, exact=exact)
        begin, stop = part.begin, part.end
        if not is_packed(part.stored):
            begin, stop = next_line(part.stored, begin), stop and next_line(part.stored, stop)
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

    counts_rows: ClassVar[bool] = False

    def pieces(self, stored: StoredFile, begin: int, size: int, anchor: Anchor = START) -> Iterator[Piece]:
        whole = stored.size()
        if is_packed(stored):
            yield from _packed_pieces(stored, begin, size, anchor, RecordEnds)
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


class _Ends(Protocol):
    """Finds ends of records, as `LineEnds` does."""

    def first(self, data: bytes, least: int) -> int: ...


def _packed_pieces(
    stored: StoredFile, begin: int, size: int, anchor: Anchor, ends: Callable[[], _Ends]
) -> Iterator[Piece]:
    """Yield the pieces of a file, which is decompressed up to the end of each."""
    rest = unopened(stored, begin, anchor, size, PACKED_FACTOR)
    if rest is not None:
        yield rest
        return
    end: int | None = begin
    while end is not None:
        with unpacked(stored, begin) as file:
            end = _next_end(file, begin + size, ends())
            weight, behind = max(1, file.offset - begin), Anchor(file.consumed)
        yield Piece(begin, end, weight, is_last=end is None, anchor=anchor, rest=behind)
        begin, anchor = begin + weight, behind


def _next_end(file: Unpacked, least: int, ends: _Ends) -> int | None:
    """Go on to the first end of a record at or behind an offset.

    Return it, None if nothing follows. Damage belongs to the piece in front of it: its reader reports it.
    """
    try:
        while data := file.read(UNPACKED_BYTES):
            end = ends.first(data, least - (file.offset - len(data)))
            if end:
                file.put_back(len(data) - end)
                return None if file.is_at_end else file.offset
    except DamagedError:
        pass
    return None


def _rows(raw: Raw, source: TextRows, first: int) -> FileRows:
    retained = 0 if first else len(source.data)
    return FileRows(raw, lambda row: source.where(first + row), lambda row: source.text(first + row), retained)
