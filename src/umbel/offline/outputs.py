"""The output of an offline query: parts, files of rejected rows, and a marker.

`<prefix>/<request>/part-00000.parquet`, `<prefix>/<request>/_errors/part-00000.json`, `<prefix>/<request>/_SUCCESS`. A part is
written on disk first and becomes visible in the bucket as a whole. The marker is written once all parts are complete.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import orjson
import polars as pl

from umbel.connectors.buckets import Bucket
from umbel.errors import InvalidValue
from umbel.formats.declarations import CSV
from umbel.offline.inputs import RejectedRow
from umbel.offline.parts import PartReport
from umbel.offline.request import PARQUET
from umbel.query.answer import Answer
from umbel.state.disk import naming
from umbel.types.arrow import arrow_schema
from umbel.types.dtype import DType

SUCCESS = "_SUCCESS"
ERRORS = "_errors"
RAW_RETAINED = 64 << 10
"""Bytes that are stored of a rejected row."""


class PartWriter(Protocol):
    """A part being written."""

    def write(self, answer: Answer) -> None:
        """Add rows."""

    def close(self) -> None:
        """Finish the file."""


class ParquetPartWriter:
    """A Parquet file: values in storage types."""

    ending = ".parquet"

    def __init__(self, path: Path, types: Mapping[str, DType]) -> None:
        import pyarrow.parquet as pq

        self._schema = arrow_schema(types)
        self._storage = pl.Schema({name: dtype.polars() for name, dtype in types.items()})
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, answer: Answer) -> None:
        frame = answer.to_polars().cast(self._storage)
        self._writer.write_table(frame.to_arrow().cast(self._schema))

    def close(self) -> None:
        self._writer.close()


class JsonPartWriter:
    """One JSON object per line: values as in HTTP responses."""

    ending = ".json"

    def __init__(self, path: Path, _: Mapping[str, DType]) -> None:
        self._file: BinaryIO = path.open("wb")

    def write(self, answer: Answer) -> None:
        columns = answer.to_json()
        for row in zip(*columns.values(), strict=True):
            self._file.write(orjson.dumps(dict(zip(columns, row, strict=True)), option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> None:
        self._file.close()


class CsvPartWriter:
    """Delimited text: values as in HTTP responses, nested ones as JSON.

    Null is an empty cell, the empty string a quoted one.
    """

    ending = ".csv"

    def __init__(self, path: Path, types: Mapping[str, DType], form: CSV) -> None:
        self._file: BinaryIO = path.open("wb")
        self._delimiter = form.delimiter
        if form.headers is None:
            pl.DataFrame(schema=dict.fromkeys(types, pl.String())).write_csv(self._file, separator=self._delimiter)

    def write(self, answer: Answer) -> None:
        cells = {name: [_cell(value) for value in values] for name, values in answer.to_json().items()}
        frame = pl.DataFrame(cells, schema=dict.fromkeys(cells, pl.String()))
        frame.write_csv(self._file, include_header=False, separator=self._delimiter)

    def close(self) -> None:
        self._file.close()


def _cell(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


Opened = Callable[[Path, Mapping[str, DType]], PartWriter]


def part_writer_of(form: str | CSV, types: Mapping[str, DType]) -> tuple[str, Opened]:
    """Return the file extension of a format and the constructor of its writer.

    Args:
        form: "parquet", "json" or CSV.
        types: of the columns of the answer.

    Raises:
        InvalidValue: the number of columns differs from the number of CSV headers.
    """
    if not isinstance(form, CSV):
        return ending_of(form), ParquetPartWriter if form == PARQUET else JsonPartWriter
    if form.headers is not None and len(form.headers) != len(types):
        raise InvalidValue(
            f"the answer has {len(types)} columns, and the CSV format of the output {len(form.headers)} headers",
            hint=f"leave headers out, or name these: {list(types)}",
        )
    return ending_of(form), lambda path, known: CsvPartWriter(path, known, form)


def ending_of(form: str | CSV) -> str:
    """Return the file extension of a format."""
    if isinstance(form, CSV):
        return CsvPartWriter.ending
    return ParquetPartWriter.ending if form == PARQUET else JsonPartWriter.ending


def part_name(number: int, ending: str) -> str:
    """Return the name of a part's file."""
    return f"part-{number:05d}{ending}"


def errors_name(number: int) -> str:
    """Return the name of the file of a part's rejected rows."""
    return f"{ERRORS}/{part_name(number, JsonPartWriter.ending)}"


class Output:
    """The output of one request: its bucket, key prefix and format.

    Args:
        bucket: the bucket of the parts.
        prefix: of all objects of the request; ends in a slash.
        form: of the parts.
    """

    def __init__(self, bucket: Bucket, prefix: str, form: str | CSV) -> None:
        self._bucket, self._prefix, self._form = bucket, prefix, form

    def part(self, number: int, folder: Path, types: Mapping[str, DType]) -> PartFile:
        """Begin a part, written to a local folder first.

        Args:
            number: of the part.
            folder: the local folder.
            types: of its columns.
        """
        ending, begin = part_writer_of(self._form, types)
        return PartFile(number, folder, types, begin, ending)

    def put(self, part: PartFile) -> None:
        """Upload a part and its rejected rows; idempotent.

        A repetition replaces them by the same content.
        """
        part.close()
        if part.rows:
            self._bucket.put(part.path, f"{self._prefix}{part_name(part.number, ending_of(self._form))}")
        if part.rejected:
            self._bucket.put(part.rejected_path, f"{self._prefix}{errors_name(part.number)}")

    def clear(self) -> None:
        """Delete everything, such as parts by another plan."""
        for each in self._bucket.listed(self._prefix):
            self._bucket.delete(each.path)

    def retain(self, reports: Sequence[PartReport]) -> None:
        """Delete what the reported answers do not have.

        An attempt that was killed leaves unfinished files, and errors of rows that a later one has answered.
        """
        reported = {f"{self._prefix}{name}" for each in reports for name in self._names(each)}
        for found in self._bucket.listed(self._prefix):
            if found.path not in reported and found.path != f"{self._prefix}{SUCCESS}":
                self._bucket.delete(found.path)

    def succeed(self, described: Mapping[str, Any]) -> None:
        """Write the marker: all parts are complete."""
        self._bucket.put_bytes(orjson.dumps(described), f"{self._prefix}{SUCCESS}")

    def _names(self, report: PartReport) -> Iterator[str]:
        if report.taken > report.failed:
            yield part_name(report.number, ending_of(self._form))
        if report.failed:
            yield errors_name(report.number)


class PartFile:
    """A part and its rejected rows, on disk."""

    def __init__(self, number: int, folder: Path, types: Mapping[str, DType], begin: Opened, ending: str) -> None:
        self.number, self.rows, self.rejected = number, 0, 0
        self.path, self.rejected_path = folder / f"part-{number}{ending}", folder / f"rejected-{number}.json"
        self._closing = ExitStack()
        with naming(self.path):
            self._writer = begin(self.path, types)
        self._closing.callback(self._writer.close)
        self._rejected = self._closing.enter_context(self.rejected_path.open("wb"))

    def write(self, answer: Answer) -> None:
        """Add rows.

        Raises:
            Transient: the disk does not take them.
        """
        with naming(self.path):
            self._writer.write(answer)
        self.rows += answer.height

    def refuse(self, rejected: Sequence[RejectedRow]) -> None:
        """Add rejected rows.

        Raises:
            Transient: the disk does not take them.
        """
        with naming(self.rejected_path):
            for each in rejected:
                self._rejected.write(orjson.dumps(_described(each), option=orjson.OPT_APPEND_NEWLINE))
        self.rejected += len(rejected)

    def close(self) -> None:
        """Finish the files.

        Raises:
            Transient: the disk does not take them.
        """
        with naming(self.path):
            self._closing.close()


def _described(rejected_row: RejectedRow) -> dict[str, str | int]:
    raw = rejected_row.text[:RAW_RETAINED]
    described: dict[str, str | int] = {
        "where": rejected_row.where,
        "field": rejected_row.field,
        "reason": _speakable(rejected_row.reason),
    }
    try:
        return {**described, "row": raw.decode(), "size": len(rejected_row.text)}
    except UnicodeDecodeError:
        return {**described, "row_base64": base64.b64encode(raw).decode(), "size": len(rejected_row.text)}


def _speakable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
