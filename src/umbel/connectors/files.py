"""Reading files: which splits a folder has, and what is in a split.

Splits are byte ranges of plain NDJSON files, and whole files of everything else. Rows are numbered by file, in the order in
which files were first seen, and by place within the file: `file << 36 | place`.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from umbel.connectors.formats import CSV
from umbel.connectors.localfiles import FilesConnector
from umbel.connectors.rawbatch import RawBatch, as_bytes, first_values, lost, parse_lines, plain
from umbel.types.dtype import DType
from umbel.types.raw import Raw

SPLIT_BYTES = 32 << 20
CHUNK_BYTES = 4 << 20
FILE_SHIFT = 36
GZIP_FACTOR = 8
"""How much larger a gzipped file is taken to be than it looks."""

Found = tuple[Mapping[str, Any], int]


@dataclass(frozen=True, slots=True)
class FileSource:
    """The reading side of a `FilesConnector`.

    Args:
        connector: which files.
        split_bytes: the size at which plain files are cut.
    """

    connector: FilesConnector
    split_bytes: int = SPLIT_BYTES

    def plan(self, position: Any, budget: int) -> tuple[Sequence[Found], Any]:
        """Return the splits not read yet, up to a budget in bytes, and the position after them.

        Args:
            position: `{"done": [names], "begun": [name, offset] or None}`, None for the beginning.
            budget: stop at about so many bytes.
        """
        position = position or {"done": [], "begun": None}
        done, begun, found = list(position["done"]), position["begun"], list[Found]()
        seen = set(done)
        names = [name for name in self._names() if name not in seen]
        names.sort(key=lambda name: begun is None or name != begun[0])
        for name in names:
            if budget <= 0:
                break
            offset = begun[1] if begun and begun[0] == name else 0
            pieces, reached, size = self._cut(name, len(done), offset, budget)
            found, budget = found + pieces, budget - sum(weight for _, weight in pieces)
            begun = None if reached >= size else [name, reached]
            if begun is None:
                done.append(name)
        return found, {"done": done, "begun": begun}

    def open(self, split: Mapping[str, Any], wanted: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a split.

        Args:
            split: as planned.
            wanted: columns that are asked for, and their types.
            exact: whether no other columns are.
        """
        path = Path(self.connector.folder, split["file"])
        file = _File(path, int(split["number"]) << FILE_SHIFT)
        if isinstance(self.connector.format, CSV):
            yield from file.csv(self.connector.format, wanted)
        elif self.connector.format == "parquet":
            yield from file.parquet()
        else:
            end = split["end"]
            yield from file.lines(int(split["begin"]), None if end is None else int(end), wanted, exact=exact)

    def _names(self) -> list[str]:
        folder = Path(self.connector.folder)
        paths = (path for path in folder.glob(self.connector.pattern) if path.is_file())
        return sorted(str(path.relative_to(folder)) for path in paths if not path.name.startswith((".", "_")))

    def _cut(self, name: str, number: int, offset: int, budget: int) -> tuple[list[Found], int, int]:
        size = Path(self.connector.folder, name).stat().st_size
        piece = {"file": name, "number": number, "begin": 0, "end": None}
        if self.connector.format != "json" or name.endswith(".gz"):
            return [(piece, size * (GZIP_FACTOR if name.endswith(".gz") else 1))], size, size
        pieces = list[Found]()
        while offset < size and budget > 0:
            end = min(size, offset + self.split_bytes)
            pieces.append(({**piece, "begin": offset, "end": end}, end - offset))
            offset, budget = end, budget - (end - offset)
        return pieces, offset, size


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    number: int

    def lines(self, begin: int, end: int | None, wanted: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the lines that begin in [begin, end)."""
        place = begin
        for data, damage in _chunks(self.path, begin, end):
            raw, source = _decoded(data, wanted, exact=exact)
            yield self._batch(raw, place, source)
            place += max(raw.frame.height, data.count(b"\n") + 1)
            if damage:
                yield self._batch(lost(damage), place, [b""])

    def csv(self, form: CSV, wanted: Mapping[str, DType]) -> Iterator[RawBatch]:
        """Yield the rows of a CSV file."""
        pieces = list(_chunks(self.path, 0, None, size=1 << 62))
        data = b"".join(piece for piece, _ in pieces)
        damage = next((reason for _, reason in pieces if reason), None)
        if damage:
            data = data[: data.rfind(b"\n") + 1]
        if data.strip():
            try:
                yield self._batch(Raw(_csv(data, form, wanted), lost("", 0).rejects), 0, None)
            except pl.exceptions.PolarsError as error:
                yield self._batch(lost(f"not a readable CSV file: {error}"), 0, [b""])
        if damage:
            yield self._batch(lost(damage), data.count(b"\n") + 1, [b""])

    def parquet(self) -> Iterator[RawBatch]:
        """Yield the rows of a Parquet file."""
        if self.path.stat().st_size == 0:
            return
        try:
            frame = pl.read_parquet(self.path)
        except (pl.exceptions.PolarsError, OSError) as error:
            yield self._batch(lost(f"not a readable Parquet file: {error}"), 0, [b""])
            return
        yield self._batch(Raw(frame, lost("", 0).rejects), 0, None)

    def _batch(self, raw: Raw, place: int, source: list[bytes] | None) -> RawBatch:
        def text(row: int) -> bytes:
            return source[row] if source is not None else as_bytes(raw.frame.row(row, named=True))

        return RawBatch(raw, self.number | place, lambda row: f"{self.path.name}:{place}+{row}", text)


def _chunks(path: Path, begin: int, end: int | None, size: int = CHUNK_BYTES) -> Iterator[tuple[bytes, str | None]]:
    """Yield whole lines that begin in [begin, end), some at a time; and what is wrong with the file, if it breaks off."""
    opened = gzip.open(path) if path.suffix == ".gz" else path.open("rb")
    with opened as file:
        if begin:
            file.seek(begin - 1)
            file.readline()
        while end is None or file.tell() < end:
            place = file.tell()
            try:
                data = file.read(size if end is None else min(size, end - place)) + file.readline()
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                yield _salvaged(path)[place:], f"the file is damaged: {error}"
                return
            if not data:
                return
            yield data, None


def _salvaged(path: Path) -> bytes:
    """Return the whole lines before the damage of a gzipped file."""
    found, unpacker = io.BytesIO(), zlib.decompressobj(wbits=31)
    rest = path.read_bytes()
    try:
        while rest:
            found.write(unpacker.decompress(rest))
            rest, unpacker = unpacker.unused_data, zlib.decompressobj(wbits=31)
    except zlib.error:
        pass
    whole = found.getvalue()
    return whole[: whole.rfind(b"\n") + 1]


def _decoded(data: bytes, wanted: Mapping[str, DType], *, exact: bool) -> tuple[Raw, list[bytes] | None]:
    """Read NDJSON: all at once where every value is of its column's type, else line by line."""
    schema = plain(wanted)
    for name, value in first_values(data[: 1 << 16].splitlines()).items():
        if name in wanted and name not in schema and isinstance(value, str | int | float) and not isinstance(value, bool):
            schema[name] = {str: pl.String(), int: pl.Int64(), float: pl.Float64()}[type(value)]
    complete = exact and set(schema) == set(wanted)
    try:
        options: dict[str, Any] = {"schema": schema} if complete else {"schema_overrides": schema, "infer_schema_length": None}
        return Raw(pl.read_ndjson(io.BytesIO(data), **options), lost("", 0).rejects), None
    except (pl.exceptions.PolarsError, ValueError):
        lines = [line for line in data.split(b"\n") if line.strip()]
        return parse_lines(lines, wanted), lines


def _csv(data: bytes, form: CSV, wanted: Mapping[str, DType]) -> pl.DataFrame:
    options: dict[str, Any] = {"separator": form.delimiter, "has_header": form.headers is None, "infer_schema": False}
    if form.headers is not None:
        options["new_columns"] = list(form.headers)
    frame = pl.read_csv(io.BytesIO(data), encoding="utf8-lossy", truncate_ragged_lines=True, **options)
    casts = {name: dtype for name, dtype in plain(wanted).items() if name in frame.columns and dtype != pl.String()}
    return frame.with_columns(_cast(frame[name], dtype) for name, dtype in casts.items())


def _cast(values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Cast text where all of it can be; else leave it, so that validation names the rows that cannot."""
    if dtype == pl.Boolean():
        named = values.str.to_lowercase().replace_strict({"true": True, "false": False}, default=None, return_dtype=dtype)
    else:
        named = values.str.strip_chars().cast(dtype, strict=False)
    return named if named.null_count() == values.null_count() else _mixed(values, named)


def _mixed(values: pl.Series, cast: pl.Series) -> pl.Series:
    mixed = [text if value is None else value for text, value in zip(values, cast, strict=True)]
    return pl.Series(values.name, mixed, dtype=pl.Object)
