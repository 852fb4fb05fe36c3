"""The input of an offline query: parts, and their accepted and rejected rows.

A file is read where it is, by requests for ranges; errors of the storage are told apart from errors of its content.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import polars as pl

from umbel.connectors.bucket_files import BucketFile
from umbel.connectors.buckets import Bucket, Stored
from umbel.errors import InvalidValue, misspelt
from umbel.formats.declarations import CSV
from umbel.formats.files import format_of
from umbel.formats.parquet import ParquetFormat, is_content
from umbel.formats.pieces import FilePart, FileRows
from umbel.formats.stored import LocalFile, is_packed
from umbel.offline.parts import PART_BYTES, PART_ROWS, InputPart, InputSlice, packed
from umbel.query.columns import mapped
from umbel.types.dtype import DType
from umbel.types.validate import validate

BATCH_ROWS = 131_072
"""Rows that are answered together, about."""
BATCH_READS = 16
"""Reads that are collected into one batch, of text up to `PART_BYTES`."""
OPENED_AT_ONCE = 8
"""Files that are looked into at once, to plan parts."""
HEAD_BYTES = 1 << 20
LONGEST_HEAD = 16 << 20
"""Bytes of a file that are looked into at most, for its columns; a header or a first row may have half of them."""


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row without an answer.

    Args:
        where: its position in the input.
        field: the column with the error, empty for the row as a whole.
        reason: the error.
        text: the row as it was read.
    """

    where: str
    field: str
    reason: str
    text: bytes


@dataclass(frozen=True, slots=True)
class AcceptedRows:
    """The accepted rows of one read.

    Args:
        rows: all rows of the read.
        accepted: the row numbers of the accepted ones.
    """

    rows: FileRows
    accepted: pl.Series


@dataclass(frozen=True, slots=True)
class InputBatch:
    """A batch of input rows.

    Args:
        frame: the accepted rows: features by name, and the instants.
        reads: the reads they come from.
        rejected: the rejected rows.
    """

    frame: pl.DataFrame
    reads: tuple[AcceptedRows, ...]
    rejected: tuple[RejectedRow, ...]

    def rejected_row(self, row: int, reason: str) -> RejectedRow:
        """Return an accepted row as rejected, because it has no answer."""
        for read in self.reads:
            if row < len(read.accepted):
                number = int(read.accepted[row])
                return RejectedRow(read.rows.where(number), "", reason, read.rows.text(number))
            row -= len(read.accepted)
        raise IndexError(row)


@dataclass(frozen=True, slots=True)
class InputColumns:
    """The columns of the input.

    Args:
        types: of the columns that are read, by their names in the input.
        features: for each name the answer is computed from its column in the input.
    """

    types: Mapping[str, DType]
    features: Mapping[str, str]

    @staticmethod
    def of(inputs: Mapping[str, DType], columns: Mapping[str, str], timestamp: str, instant: DType) -> InputColumns:
        """Map features and the timestamp to columns of the input.

        Raises:
            InvalidValue: one column would have two types, or a mapped name is no input of the query.
        """
        features = mapped(inputs, columns)
        types: dict[str, DType] = {timestamp: instant}
        for name, column in features.items():
            if types.setdefault(column, inputs[name]) != inputs[name]:
                raise InvalidValue(
                    f"column '{column}' would be of type {types[column]} and, for feature {name}, of type {inputs[name]}",
                    hint="name another column in feature_to_column_map",
                )
        return InputColumns(types, features)


class Input(Protocol):
    """The input of a query: its parts, and their rows."""

    def parts(self) -> list[InputPart]:
        """Return the parts, which depend on the input alone."""

    def batches(self, part: InputPart) -> Iterator[InputBatch]:
        """Yield the rows of a part, in order."""


class FileInput:
    """Input files in a bucket.

    Args:
        bucket: the bucket.
        form: the format of the files.
        files: the files to read.
        requested: the columns to read.
    """

    def __init__(self, bucket: Bucket, form: str | CSV, files: tuple[Stored, ...], requested: InputColumns) -> None:
        self._form, self._requested = format_of(form), requested
        self._files = [BucketFile(bucket, each) for each in files]

    def parts(self) -> list[InputPart]:
        with ThreadPoolExecutor(OPENED_AT_ONCE) as threads:
            found = threads.map(self._slices, range(len(self._files)))
            return packed(each for of_file in found for each in of_file)

    def _slices(self, number: int) -> list[InputSlice]:
        form, file = self._form, self._files[number]
        if isinstance(form, ParquetFormat):
            pieces = form.slices(file, self._requested.types, PART_ROWS, PART_BYTES)
            return [
                InputSlice(number, each.begin, each.end, (each.end or each.begin) - each.begin, each.weight)
                for each in pieces
            ]
        size = sys.maxsize if is_packed(file) else PART_BYTES  # it would be decompressed from its start for each part
        return [InputSlice(number, each.begin, each.end, 0, each.weight) for each in form.pieces(file, 0, size)]

    def batches(self, part: InputPart) -> Iterator[InputBatch]:
        collected = _Collected(self._requested)
        for each in part.slices:
            file = self._files[each.file]
            read = FilePart(file, file.stored.path, each.begin, each.end)
            for rows in self._form.read(read, self._requested.types, exact=True):
                collected.add(rows)
                if collected.is_full:
                    yield collected.taken()
                    collected = _Collected(self._requested)
            file.check()  # what was read is of one content
        if collected.reads or collected.rejected:
            yield collected.taken()


class FrameInput:
    """Input rows sent with the request.

    Args:
        data: as an Arrow file, with the columns of the input.
    """

    def __init__(self, data: bytes) -> None:
        self._frame = pl.read_ipc(io.BytesIO(data))

    def parts(self) -> list[InputPart]:
        height = self._frame.height
        starts = ((start, min(start + PART_ROWS, height)) for start in range(0, height, PART_ROWS))
        return packed(InputSlice(0, start, end, end - start, end - start) for start, end in starts)

    def batches(self, part: InputPart) -> Iterator[InputBatch]:
        for each in part.slices:
            frame = self._frame.slice(each.begin, each.rows)
            accepted = AcceptedRows(_provided(frame, each.begin), pl.arange(frame.height, dtype=pl.UInt32, eager=True))
            yield InputBatch(frame, (accepted,), ())


class _Collected:
    """Reads collected into a batch."""

    def __init__(self, requested: InputColumns) -> None:
        self._requested, self._frames = requested, list[pl.DataFrame]()
        self.reads, self.rejected = list[AcceptedRows](), list[RejectedRow]()
        self._rows = self._count = self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._rows >= BATCH_ROWS or self._count >= BATCH_READS or self._bytes >= PART_BYTES

    def add(self, rows: FileRows) -> None:
        judged = validate(rows.raw.frame, self._requested.types, refused=rows.raw.rejects)
        for row, field, reason in judged.rejects.unique("row", keep="first", maintain_order=True).iter_rows():
            self.rejected.append(RejectedRow(rows.where(row), field, reason, rows.text(row)))
        if judged.frame.height:
            self._frames.append(judged.frame)
            self.reads.append(AcceptedRows(rows, judged.accepted))
        self._rows, self._count = self._rows + rows.raw.frame.height, self._count + 1
        self._bytes += rows.retained

    def taken(self) -> InputBatch:
        frame = pl.concat(self._frames) if self._frames else pl.DataFrame()
        return InputBatch(frame, tuple(self.reads), tuple(self.rejected))


def check_columns(
    bucket: Bucket, form: str | CSV, files: tuple[Stored, ...], requested: InputColumns, folder: Path
) -> None:
    """Check the input's columns on the head of the first file with rows.

    Raises:
        InvalidValue: there are no rows, or columns are missing.
    """
    file = next((each for each in files if each.size), None)
    rows, found = (0, []) if file is None else _columns(bucket, form, file, folder)
    if file is None or (not rows and len(files) == 1 and (form == "parquet" or file.size <= LONGEST_HEAD)):
        raise InvalidValue("the input is empty: no file has rows", hint="name files that have some")
    missing = [column for column, dtype in requested.types.items() if column not in found and not dtype.is_optional]
    if rows and found and missing:
        timestamp = next(iter(requested.types))
        described = f"timestamp column '{timestamp}'" if timestamp in missing else f"columns {missing}"
        meant = misspelt(missing, (name for name in found if name not in requested.types))
        raise InvalidValue(
            f"input file '{file.path}' misses {described}; required: {list(requested.types)}, present: {found}{meant}",
            hint="feature_to_column_map says which columns hold the inputs, timestamp_column which holds the instants",
        )


def _columns(bucket: Bucket, form: str | CSV, file: Stored, folder: Path) -> tuple[int, list[str]]:
    """Return the number of rows in a file's head, and their columns.

    A head without rows, such as one within a long header, is looked for again in a longer one.
    """
    if form == "parquet":
        return _parquet_columns(bucket, file)
    size = HEAD_BYTES
    while not (found := _columns_within(bucket, form, file, folder, size))[0] and size < min(file.size, LONGEST_HEAD):
        size *= 4
    return found


def _columns_within(bucket: Bucket, form: str | CSV, file: Stored, folder: Path, size: int) -> tuple[int, list[str]]:
    head, height = folder / f"head{_endings(file.path)}", 0
    bucket.fetch_head(file.path, head, size)
    for rows in format_of(form).read(FilePart(LocalFile(head), file.path, 0, None), {}, exact=False):
        height += rows.raw.frame.height
        if rows.raw.frame.height and rows.raw.frame.width:
            return height, rows.raw.frame.columns
    return height, []


def _parquet_columns(bucket: Bucket, file: Stored) -> tuple[int, list[str]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with BucketFile(bucket, file).open() as source:
            parquet = pq.ParquetFile(source)
            return parquet.metadata.num_rows, [str(name) for name in parquet.schema_arrow.names]
    except (pa.ArrowException, OSError) as error:
        if not is_content(error):
            raise
        raise InvalidValue(
            f"input file '{file.path}' is not a readable Parquet file: {error}",
            hint="is it damaged, encrypted, or of another format?",
        ) from error


def _provided(frame: pl.DataFrame, start: int) -> FileRows:
    from umbel.formats.raw_batch import as_bytes
    from umbel.types.raw import Raw, rejects
    from umbel.types.years import row_of

    return FileRows(
        Raw(frame, rejects({})),
        lambda row: f"row {start + row}",
        lambda row: as_bytes(row_of(frame, row)),
    )


def _endings(path: str) -> str:
    return "".join(Path(path).suffixes[-2:]) if path.endswith(".gz") else Path(path).suffix
