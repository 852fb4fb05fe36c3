"""Parquet files: pieces are ranges of rows, aligned to row groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

import polars as pl

from umbel.formats.pieces import FilePart, FileRows, Piece, framed, unreadable, with_absent
from umbel.formats.stored import StoredFile
from umbel.types.arrow import polars_of, without_broken_texts
from umbel.types.dtype import DType
from umbel.types.raw import Raw, rejects

ROWS = 262_144
"""Rows of a file in memory at once."""
WHOLE_BYTES = 1 << 20
"""A file up to this size is one piece, and not opened for planning."""
PACKED_FACTOR = 4
"""Estimated ratio of uncompressed to compressed size."""
NOT_UTF8 = "a text in it is not UTF-8"


class ParquetFormat:
    """Parquet files."""

    def pieces(self, stored: StoredFile, begin: int, size: int) -> Iterator[Piece]:
        import pyarrow as pa

        whole = stored.size()
        if not whole:
            return
        if whole <= min(WHOLE_BYTES, size) and not begin:
            yield Piece(0, None, whole * PACKED_FACTOR, is_last=True)
            return
        try:
            with stored.open() as file:
                groups = _groups(_opened(file).metadata)
        except (pa.ArrowException, OSError) as error:
            if not is_content(error):
                raise
            yield Piece(0, None, whole, is_last=True)  # the reader of the piece reports the error
            return
        last = sum(rows for rows, _ in groups)
        for start, end, weight in _merged(groups, size):
            if end > begin:
                yield Piece(start, end, weight, is_last=end == last)

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
                sizes = _sizes(_opened(file).metadata, requested)
        except (pa.ArrowException, OSError) as error:
            if not is_content(error):
                raise
            yield Piece(0, None, stored.size(), is_last=True)  # the reader of the piece reports the error
            return
        last, row = sum(count for count, _ in sizes), 0
        for count, bytes_ in sizes:
            pieces = min(max(-(-count // rows), -(-bytes_ // size), 1), max(count, 1))
            cuts = [row + count * number // pieces for number in range(pieces + 1)]
            for begin, end in pairwise(cuts):
                if end > begin:
                    yield Piece(begin, end, max(1, bytes_ // pieces), is_last=end == last)
            row += count

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        import pyarrow as pa

        if part.stored.size() == 0:
            return
        row = part.begin
        try:
            with part.stored.open() as source:
                file = _opened(source)
                present = [name for name in file.schema_arrow.names if name in requested or not exact]
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


def _opened(file: Any) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us")  # in ns they end in the year 2262


def _groups(facts: Any) -> list[tuple[int, int]]:
    groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
    return [(group.num_rows, group.total_byte_size) for group in groups]


def _sizes(facts: Any, columns: Collection[str]) -> list[tuple[int, int]]:
    """Return rows and uncompressed bytes of some columns, of each row group."""
    leaves = [at for at in range(facts.num_columns) if _is_part_of(facts.schema.column(at).path, columns)]
    groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
    return [(each.num_rows, sum(each.column(at).total_uncompressed_size for at in leaves)) for each in groups]


def _within(facts: Any, part: FilePart) -> tuple[int, list[int]]:
    """Return the row groups with rows of a part, after their first row."""
    found, first, row = list[int](), 0, 0
    for number, (rows, _) in enumerate(_groups(facts)):
        if row + rows > part.begin and (part.end is None or row < part.end):
            first = first if found else row
            found.append(number)
        row += rows
    return first, found


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
