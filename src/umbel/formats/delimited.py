"""Parse rows of delimited text: vectorised by Polars, record by record on errors.

A record ends at a line break outside quotes. Every value is read as text; validation converts it.
An empty value is null, a quoted empty one is the empty text.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count

import numpy as np
import polars as pl
from numpy.typing import NDArray

from umbel.formats.chunks import CHUNK_BYTES, COMPRESSED, MAX_ROW, RAW_RETAINED, Chunk, chunks, last_line
from umbel.formats.declarations import CSV
from umbel.formats.stored import StoredFile
from umbel.types.raw import Raw, rejects

QUOTE = ord('"')
BREAK = ord("\n")
LINES_IN_RECORD = 10_000
UNDIVIDED = 1 << 14
"""Bytes that are read record by record where one of them has an error."""
_BOM = b"\xef\xbb\xbf"
_CARRIAGE_RETURNS = (
    "lines end in a carriage return alone; write a new file with line feeds: tr '\\r' '\\n' < old.csv > new.csv"
)


@dataclass(frozen=True, slots=True)
class Delimited:
    """A parser of the records of one file.

    Args:
        names: the columns, in the order they have in the file.
        delimiter: a single character.
    """

    names: tuple[str, ...]
    delimiter: str

    def read(self, data: bytes) -> Raw:
        """Return the rows of some whole records, blank lines left out."""
        found = list(self._pieces(data))
        begins = accumulate((raw.frame.height for raw in found), initial=0)
        errors = [raw.rejects.with_columns(pl.col("row") + begin) for raw, begin in zip(found, begins, strict=False)]
        return Raw(pl.concat(raw.frame for raw in found), pl.concat(errors))

    def _pieces(self, data: bytes) -> Iterator[Raw]:
        """Yield the rows in order, those of halves with an error apart."""
        frame = self._at_once(data)
        if frame is not None:
            yield Raw(frame, rejects({}))
        elif middle := _middle(data):
            yield from self._pieces(data[:middle])
            yield from self._pieces(data[middle:])
        else:
            yield self._one_by_one(data)

    def _one_by_one(self, data: bytes) -> Raw:
        records = self.records(data)
        errors = {row: error for row, record in enumerate(records) if (error := self._error(record))}
        good = [record for row, record in enumerate(records) if row not in errors]
        frames = list(self._halves(good))
        whole = pl.concat([each for each, _ in frames]) if frames else self._nothing(0)
        positions = np.array([row for row in range(len(records)) if row not in errors], dtype=np.int64)
        found = {int(positions[at]): reason for at, reason in _broken(frames)}
        return Raw(_scattered(whole, positions, len(records)), rejects({**errors, **found}).sort("row"))

    def records(self, data: bytes) -> list[bytes]:
        """Return the records, without their line breaks.

        A quote that is never closed ends with its line.
        """
        return list(_records(data, self.delimiter))

    def _at_once(self, data: bytes) -> pl.DataFrame | None:
        if b"\n\n" in data or b"\n\r\n" in data or data.startswith((b"\n", b"\r\n")):
            return None  # blank lines are not rows
        if len(data) > MAX_ROW or data.count(b'"') % 2:
            return None  # a row may be too long, a quote is not closed
        lines, delimiters = _shape(data, ord(self.delimiter))
        if delimiters != lines * (len(self.names) - 1):
            return None
        frame = self._parse(data)
        if frame is None or frame.height != lines:
            return None
        is_blank = len(self.names) == 1 and frame.to_series().str.strip_chars().eq("").any()
        return None if is_blank else frame  # white space of one column is a blank line, or a quoted text

    def _parse(self, data: bytes) -> pl.DataFrame | None:
        if not data:
            return self._nothing(0)
        schema, skipped = dict.fromkeys(self.names, pl.String()), 0
        if data.startswith((_BOM, *COMPRESSED)):  # Polars would leave out the mark, or decompress the rows
            data, skipped = b"-\n" + data, 1
        try:
            return pl.read_csv(
                io.BytesIO(data), has_header=False, schema=schema, separator=self.delimiter, skip_rows=skipped
            )
        except pl.exceptions.PolarsError:
            return None

    def _nothing(self, height: int) -> pl.DataFrame:
        return pl.DataFrame(
            {name: [None] * height for name in self.names}, schema=dict.fromkeys(self.names, pl.String())
        )

    def _error(self, record: bytes) -> str | None:
        if len(record) > MAX_ROW:
            return f"a row of {len(record)} bytes is longer than {MAX_ROW}"
        if record.count(b'"') % 2:
            return "a quote that is not closed"
        try:
            record.decode()
        except UnicodeDecodeError as error:
            return f"not UTF-8: byte {error.start} of the row is 0x{record[error.start]:02x}"
        fields = _shape(record, ord(self.delimiter))[1] + 1
        return None if fields == len(self.names) else f"{fields} fields where {len(self.names)} are expected"

    def _halves(self, records: Sequence[bytes]) -> Iterator[tuple[pl.DataFrame, str | None]]:
        """Yield the records as frames, an invalid one alone with its reason."""
        if not records:
            return
        frame = self._parse(b"\n".join(records) + b"\n")
        if frame is not None and frame.height == len(records):
            yield frame, None
        elif len(records) == 1:
            yield self._nothing(1), "not a delimited row: a quote in the middle of a value"
        else:
            middle = len(records) // 2
            yield from self._halves(records[:middle])
            yield from self._halves(records[middle:])


def open_delimited(stored: StoredFile, form: CSV, begin: int, end: int | None) -> Iterator[tuple[Delimited, Chunk]]:
    """Yield the chunks of a file's records between two offsets, each with its parser.

    The byte order mark and the header are left out.

    Args:
        stored: the file.
        form: the declared delimiter and headers.
        begin: at the start of a record; 0 is before the header.
        end: at the start of a record, None for the end of the file.
    """
    header = _Header(tuple(form.headers), 0) if form.headers is not None else _header(stored, form)
    reader = Delimited(header.names, form.delimiter)
    if header.error is not None:
        if begin == 0:  # it is an error of the file, not of each of its pieces
            yield reader, Chunk(begin, header.record[:RAW_RETAINED], header.error)
        return
    for chunk in chunks(stored, begin, end, last_record):
        first = header.end or (len(_BOM) if chunk.offset == 0 and chunk.data.startswith(_BOM) else 0)
        if chunk.offset < first and chunk.error is None:
            yield reader, Chunk(first, chunk.data[first - chunk.offset :])
        else:
            yield reader, chunk


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of a file.

    Args:
        names: the columns; different ones.
        end: the offset of the next record.
        record: its bytes.
        error: the reason that it names no columns, None if it does.
    """

    names: tuple[str, ...]
    end: int
    record: bytes = b""
    error: str | None = None


def _header(stored: StoredFile, form: CSV) -> _Header:
    """Return the header of a file, without columns if it has no record."""
    for chunk in chunks(stored, 0, None, last_record):
        if chunk.error is not None:
            return _Header((), 0, chunk.data, f"the header cannot be read: {chunk.error}")
        record = next((each for each in _records(chunk.data, form.delimiter) if each.strip()), None)
        if record is not None:
            behind = chunk.data.find(b"\n", chunk.data.find(record) + len(record)) + 1 or len(chunk.data)
            return _parsed_header(record, chunk.offset + behind, form.delimiter)
    return _Header((), 0)


def _parsed_header(record: bytes, end: int, delimiter: str) -> _Header:
    text = record.removeprefix(_BOM).decode(errors="replace")
    if not text.strip():
        return _Header((), end, record, "the header names no columns")
    try:
        lines = io.StringIO(f"-\n{text}")  # Polars would decompress a text that begins as a compressed one
        frame = pl.read_csv(lines, has_header=False, infer_schema=False, separator=delimiter, skip_rows=1)
    except pl.exceptions.PolarsError:
        return _Header(
            (), end, record, "the header is not a delimited row: a quote in the middle of a name, or not closed"
        )
    names = _distinct([str(name).strip() for name in frame.row(0)])
    return _Header(names, end, record, _CARRIAGE_RETURNS if any("\r" in name for name in names) else None)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return different names of columns: the second of a name has its number added."""
    found, used = dict[str, None](), set(names)
    for at, name in enumerate(names):
        free = name if name not in found else next(new for n in count(at) if (new := f"{name}_{n}") not in used)
        found[free] = None
        used.add(free)
    return tuple(found)


def last_record(data: bytes) -> int:
    """Return the length of the whole records, in bytes."""
    if b'"' not in data:
        return last_line(data)
    bytes_ = np.frombuffer(data, np.uint8)
    outside = np.flatnonzero((bytes_ == BREAK) & (_inside(bytes_) == 0))
    return int(outside[-1]) + 1 if len(outside) else 0


class RecordEnds:
    """Finds the end of a record in a file that is read piece by piece.

    The first piece begins at the start of a record.
    """

    def __init__(self) -> None:
        self._quotes, self._behind = 0, 0

    def first(self, data: bytes, least: int) -> int:
        """Return the first end of a record at or behind an offset, 0 for none.

        A quote that is not closed for longer than a record may be does not hide the ends of lines.

        Args:
            data: the next bytes of the file.
            least: the offset in them.
        """
        if len(data) >= least:
            bytes_ = np.frombuffer(data, np.uint8)
            outside = np.flatnonzero((bytes_ == BREAK) & ((_inside(bytes_) + self._quotes) & 1 == 0))
            at = int(np.searchsorted(outside, least - 1))
            if at < len(outside):
                return int(outside[at]) + 1
            self._behind += len(data) - max(least, 0)
        self._quotes = (self._quotes + data.count(b'"')) & 1
        return data.find(b"\n", max(least - 1, 0)) + 1 if self._behind > MAX_ROW else 0


def end_of_record(stored: StoredFile, begin: int, least: int) -> int:
    """Return the first record end at or behind an offset, else the file's size.

    Args:
        stored: the file.
        begin: the start of a record.
        least: the offset.
    """
    offset, ends = begin, RecordEnds()
    with stored.open() as file:
        file.seek(begin)
        while piece := file.read(CHUNK_BYTES):
            if end := ends.first(piece, least - offset):
                return offset + end
            offset += len(piece)
    return offset


def _records(data: bytes, delimiter: str) -> Iterator[bytes]:
    """Yield the records; lines of white space are none, unless it delimits empty values."""
    lines, at = data.split(b"\n"), 0
    while at < len(lines):
        size = _lines_of_record(lines, at)
        record = b"\n".join(lines[at : at + size]).removesuffix(b"\r")
        at += size
        if record.strip() or delimiter.encode() in record:
            yield record


def _lines_of_record(lines: Sequence[bytes], at: int) -> int:
    quotes = 0
    for place in range(at, min(len(lines), at + LINES_IN_RECORD)):  # a slice would copy as many lines for each record
        quotes += lines[place].count(b'"')
        if quotes % 2 == 0:
            return place - at + 1
    return 1


def _middle(data: bytes) -> int:
    """Return the end of a record about in the middle, 0 if there is none."""
    if len(data) <= UNDIVIDED:
        return 0
    if b'"' not in data:
        end = data.find(b"\n", len(data) // 2) + 1
        return end if end < len(data) else 0
    bytes_ = np.frombuffer(data, np.uint8)
    inside, breaks = _inside(bytes_), np.flatnonzero(bytes_ == BREAK)
    ends = np.flatnonzero(inside[breaks] == 0)
    if inside[-1] or np.diff(ends, prepend=-1, append=len(breaks)).max() > LINES_IN_RECORD:
        return 0  # a quote is not closed: where records end depends on those before
    at = int(np.searchsorted(breaks[ends], len(data) // 2))
    end = int(breaks[ends[at]]) + 1 if at < len(ends) else len(data)
    return end if end < len(data) else 0


def _inside(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return 1 for each byte inside quotes, else 0.

    Sums wrap at 256, which is even.
    """
    return np.cumsum(data == QUOTE, dtype=np.uint8) & np.uint8(1)


def _shape(data: bytes, delimiter: int) -> tuple[int, int]:
    """Return the number of records and the number of delimiters."""
    unended = not data.endswith(b"\n")
    if b'"' not in data:
        return data.count(b"\n") + unended, data.count(delimiter)
    bytes_ = np.frombuffer(data, np.uint8)
    outside = bytes_[_inside(bytes_) == 0]
    return int(np.count_nonzero(outside == BREAK)) + unended, int(np.count_nonzero(outside == delimiter))


def _broken(frames: Sequence[tuple[pl.DataFrame, str | None]]) -> Iterator[tuple[int, str]]:
    row = 0
    for frame, reason in frames:
        if reason is not None:
            yield row, reason
        row += frame.height


def _scattered(frame: pl.DataFrame, positions: NDArray[np.int64], height: int) -> pl.DataFrame:
    """Scatter the rows of a frame to `positions` among `height` rows; null elsewhere."""
    if frame.height == height:
        return frame
    source = pl.Series(np.full(height, -1, np.int64)).scatter(positions, np.arange(len(positions)))
    return frame.select(pl.all().gather(source.set(source < 0, None)))
