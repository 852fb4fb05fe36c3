"""The output of an offline query: parts in a bucket, a file of faults beside each, and a marker once all are there.

`<prefix>/<request>/part-00000.parquet`, `<prefix>/<request>/_errors/part-00000.json`, `<prefix>/<request>/_SUCCESS`. A part is
written on disk first and becomes visible in the bucket as a whole.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import orjson
import polars as pl

from umbel.connectors.buckets import Bucket
from umbel.connectors.formats import CSV
from umbel.errors import InvalidValue
from umbel.query.answer import Answer
from umbel.runtime.offline.inputs import Fault
from umbel.types.arrow import arrow_schema
from umbel.types.dtype import DType

SUCCESS = "_SUCCESS"
ERRORS = "_errors"
RAW_KEPT = 64 << 10
"""Bytes that are kept of a row without an answer."""


class Sheet(Protocol):
    """A part while it is written."""

    def write(self, answer: Answer) -> None:
        """Add rows."""

    def close(self) -> None:
        """Finish the file."""


class ParquetSheet:
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


class JsonSheet:
    """One JSON object per line: values as HTTP answers have them."""

    ending = ".json"

    def __init__(self, path: Path, _: Mapping[str, DType]) -> None:
        self._file: BinaryIO = path.open("wb")

    def write(self, answer: Answer) -> None:
        columns = answer.to_json()
        for row in zip(*columns.values(), strict=True):
            self._file.write(orjson.dumps(dict(zip(columns, row, strict=True)), option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> None:
        self._file.close()


class CsvSheet:
    """Delimited text: values as HTTP answers have them, nested ones as JSON; null is empty, the empty text quoted."""

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


Opened = Callable[[Path, Mapping[str, DType]], Sheet]


def sheet_of(form: str | CSV, types: Mapping[str, DType]) -> tuple[str, Opened]:
    """Return the ending of files of a format, and what begins one.

    Args:
        form: "parquet", "json" or CSV.
        types: of the columns of the answer.

    Raises:
        InvalidValue: the columns have another number than the headers of CSV.
    """
    if not isinstance(form, CSV):
        return (ParquetSheet.ending, ParquetSheet) if form == "parquet" else (JsonSheet.ending, JsonSheet)
    if form.headers is not None and len(form.headers) != len(types):
        raise InvalidValue(
            f"the answer has {len(types)} columns, and the CSV format of the output {len(form.headers)} headers",
            hint=f"leave headers out, or name these: {list(types)}",
        )
    return CsvSheet.ending, lambda path, known: CsvSheet(path, known, form)


class Output:
    """Where the parts of one request go.

    Args:
        bucket: where.
        prefix: of all that belongs to the request; ends in a slash.
        form: of the parts.
        types: of their columns.
        folder: where they are written first.
    """

    def __init__(self, bucket: Bucket, prefix: str, form: str | CSV, types: Mapping[str, DType], folder: Path) -> None:
        self._bucket, self._prefix, self._types, self._folder = bucket, prefix, types, folder
        self._ending, self._open = sheet_of(form, types)

    def part(self, number: int) -> PartFile:
        """Begin a part."""
        return PartFile(number, self._folder, self._types, self._open, self._ending)

    def put(self, part: PartFile) -> None:
        """Put a part and its faults where they belong; doing so again replaces them by the same."""
        part.close()
        if part.rows:
            self._bucket.put(part.path, f"{self._prefix}part-{part.number:05d}{self._ending}")
        if part.faults:
            self._bucket.put(part.faulty, f"{self._prefix}{ERRORS}/part-{part.number:05d}.json")
        part.discard()

    def succeed(self, told: Mapping[str, Any]) -> None:
        """Say that all parts are there."""
        marker = self._folder / SUCCESS
        marker.write_bytes(orjson.dumps(told))
        self._bucket.put(marker, f"{self._prefix}{SUCCESS}")


class PartFile:
    """A part and its faults, on disk."""

    def __init__(self, number: int, folder: Path, types: Mapping[str, DType], begin: Opened, ending: str) -> None:
        self.number, self.rows, self.faults = number, 0, 0
        self.path, self.faulty = folder / f"part-{number}{ending}", folder / f"faults-{number}.json"
        self._closing = ExitStack()
        self._sheet = begin(self.path, types)
        self._closing.callback(self._sheet.close)
        self._faults = self._closing.enter_context(self.faulty.open("wb"))

    def write(self, answer: Answer) -> None:
        """Add rows."""
        self._sheet.write(answer)
        self.rows += answer.height

    def refuse(self, faults: Sequence[Fault]) -> None:
        """Add rows without an answer."""
        for each in faults:
            self._faults.write(orjson.dumps(_told(each), option=orjson.OPT_APPEND_NEWLINE))
        self.faults += len(faults)

    def close(self) -> None:
        """Finish the files."""
        self._closing.close()

    def discard(self) -> None:
        """Delete the files."""
        self.close()
        self.path.unlink(missing_ok=True)
        self.faulty.unlink(missing_ok=True)


def _told(fault: Fault) -> dict[str, str | int]:
    raw = fault.text[:RAW_KEPT]
    told: dict[str, str | int] = {"where": fault.where, "field": fault.field, "reason": _speakable(fault.reason)}
    try:
        return {**told, "row": raw.decode(), "size": len(fault.text)}
    except UnicodeDecodeError:
        return {**told, "row_base64": base64.b64encode(raw).decode(), "size": len(fault.text)}


def _speakable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
