"""Parquet files: pieces are ranges of rows, mostly of whole row groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

import polars as pl

from umbel.formats.pieces import (
    DIVIDED,
    START,
    Anchor,
    FilePart,
    FileRows,
    Piece,
    evenly,
    framed,
    unreadable,
    with_absent,
)
from umbel.formats.stored import StoredFile
from umbel.types.arrow import polars_of, without_broken_texts
from umbel.types.dtype import DType
from umbel.types.raw import Raw, rejects

ROWS = 262_144
"""Rows of a file in memory at once."""
WHOLE_BYTES = 1 << 20
"""A file up to this size is one piece, and not opened for planning."""
STREAMED_BYTES = 64 << 20
"""Bytes of a row group above which its columns are not read as a whole, but piece by piece."""
MOST_BUFFERED, LEAST_BUFFERED = 4 << 20, 64 << 10
"""Bytes of such a piece of a column; those of all columns together are as many as of a row group that is read as a whole."""
PACKED_FACTOR = 4
"""Estimated ratio of uncompressed to compressed size."""
NOT_UTF8 = "a text in it is not UTF-8"


class ParquetFormat:
    """Parquet files."""

    counts_rows: ClassVar[bool] = True

    def pieces(self, stored: StoredFile, begin: int, size: int, anchor: Anchor = START) -> Iterator[Piece]:
        import pyarrow as pa

        del anchor
        whole = stored.size()
        if not whole:
            return
        if whole <= min(WHOLE_BYTES, size) and not begin:
            yield Piece(0, None, whole * PACKED_FACTOR, is_last=True)
            return
        try:
            with stored.open() as file:
                groups = _groups(opened(file).metadata)
        except (pa.ArrowException, OSError) as error:
            if not is_content(error):
                raise
            yield Piece(0, None, whole, is_last=True)  # the reader of the piece reports the error
            return
        last = sum(rows for rows, _ in groups)
        for start, end, weight in _merged(_divided(groups, begin, size), size):
            yield Piece(start, end, weight, is_last=end == last, rest=Anchor(whole * end // last))

    def slices(self, stored: StoredFile, requested: Collection[str], rows: int, size: int) -> Iterator[Piece]:
        """Yield bounded ranges of rows, each of one row group.

        A huge row group has several.

        Args:
            stored: the file.
            requested: the columns that will be read.
            rows: the largest number of rows of a range.
            size: the largest number of uncompressed bytes of these columns, about.
        """
        import pyarrow as pa

        try:
            with stored.open() as file:
                sizes = _sizes(opened(file).metadata, requested)
        except (pa.ArrowException, OSError) as error:
            if not is_content(error):
                raise
            yield Piece(0, None, stored.size(), is_last=True)  # the reader of the piece reports the error
            return
        last, row = sum(count for count, _ in sizes), 0
        for count, bytes_ in sizes:
            for begin, end, weight in evenly(row, row + count, bytes_, max(-(-count // rows), -(-bytes_ // size))):
                yield Piece(begin, end, weight, is_last=end == last)
            row += count

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        import pyarrow as pa

        if part.stored.size() == 0:
            return
        row = part.begin
        try:
            with part.stored.open() as source:
                file = opened(source)
                present = [name for name in file.schema_arrow.names if name in requested or not exact]
                file = streamed(file, source, present)
                for batch in _batches(file, part, present):
                    sound, broken = without_broken_texts(batch)
                    frame = polars_of(sound) if present else pl.DataFrame(height=batch.num_rows)
                    refused = [rejects(dict.fromkeys(rows, NOT_UTF8), name) for name, rows in broken.items()]
                    yield framed(part, with_absent(Raw(frame, pl.concat([rejects({}), *refused])), requested), row)
                    row += frame.height
        except (pa.ArrowException, OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            if not is_content(error):
                raise
            yield unreadable(part, f"not a readable Parquet file: {error}", row)


def _batches(file: Any, part: FilePart, columns: list[str]) -> Iterator[Any]:
    """Yield the rows of a part, which may begin and end inside of row groups."""
    row, groups = _within(file.metadata, part)
    for batch in file.iter_batches(ROWS, row_groups=groups, columns=columns):
        begin = max(part.begin - row, 0)
        end = batch.num_rows if part.end is None else min(part.end - row, batch.num_rows)
        row += batch.num_rows
        if begin < end:
            yield batch.slice(begin, end - begin)
        if part.end is not None and row >= part.end:
            return


def _is_part_of(path: str, columns: Collection[str]) -> bool:
    """Return True if a leaf is a column or inside of one.

    Names of columns may have dots.
    """
    return any(path == name or path.startswith(f"{name}.") for name in columns)


def is_content(error: BaseException) -> bool:
    """Return True for an error of a file's content, False for one of its storage."""
    return not isinstance(error, OSError) or (error.errno is None and not isinstance(error, FileNotFoundError))


def opened(file: Any) -> Any:
    """Return a Parquet file of a path or an Arrow file."""
    return _parquet_file(file)


def streamed(file: Any, source: Any, columns: Collection[str]) -> Any:
    """Return an opened file to read columns of, large row groups piece by piece.

    Args:
        file: the file, as of `opened`.
        source: what it was opened of.
        columns: the columns that will be read.
    """
    facts = file.metadata
    if max((size for _, size in _sizes(facts, columns, "total_compressed_size")), default=0) <= STREAMED_BYTES:
        return file
    size = max(LEAST_BUFFERED, min(MOST_BUFFERED, STREAMED_BYTES // facts.num_columns))
    return _parquet_file(source, metadata=facts, buffer_size=size, pre_buffer=False)


def _parquet_file(source: Any, **options: Any) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", **options)  # in ns they end in the year 2262


def _groups(facts: Any) -> list[tuple[int, int]]:
    groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
    return [(group.num_rows, group.total_byte_size) for group in groups]


def _sizes(facts: Any, columns: Collection[str], kind: str = "total_uncompressed_size") -> list[tuple[int, int]]:
    """Return rows and bytes of some columns, of each row group."""
    leaves = [at for at in range(facts.num_columns) if _is_part_of(facts.schema.column(at).path, columns)]
    groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
    return [(each.num_rows, sum(getattr(each.column(at), kind) for at in leaves)) for each in groups]


def _within(facts: Any, part: FilePart) -> tuple[int, list[int]]:
    """Return the row groups with rows of a part, after their first row."""
    found, first, row = list[int](), 0, 0
    for number, (rows, _) in enumerate(_groups(facts)):
        if row + rows > part.begin and (part.end is None or row < part.end):
            first = first if found else row
            found.append(number)
        row += rows
    return first, found


def _divided(groups: list[tuple[int, int]], begin: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield what is left of row groups behind a row.

    A much too large one is yielded in several ranges. Of each, the first row, the row behind the last, and the bytes.
    """
    row = 0
    for rows, bytes_ in groups:
        start, row = max(row, begin), row + rows
        if start < row:
            left = bytes_ * (row - start) // rows
            yield from evenly(start, row, left, -(-left // size) if left > DIVIDED * size else 1)


def _merged(ranges: Iterator[tuple[int, int, int]], size: int) -> Iterator[tuple[int, int, int]]:
    """Yield neighbouring ranges merged up to a size."""
    start, end, weight = -1, -1, 0
    for first, behind, bytes_ in ranges:
        if start >= 0 and weight + bytes_ > size:
            yield start, end, weight
            start, weight = -1, 0
        start, end, weight = first if start < 0 else start, behind, weight + bytes_
    if start >= 0:
        yield start, end, weight
