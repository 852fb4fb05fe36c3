"""Parquet of lines of JSON: columns of the smallest types that fit all values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from umbel.transform.values import dump, parse

PIECE = 4 << 20
"""Bytes that are read at once."""
MOST_NESTED = 32
"""Levels of lists and objects that are columns; what is deeper is JSON in a text."""
_ODD_NUMBER = re.compile(rb"(?<=[:\[,])(?:NaN|-?Infinity)(?=[,\]}])")
_HALF = re.compile(rb"(?<!\\)((?:\\\\)*)\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_SCALARS: dict[type, pl.DataType] = {bool: pl.Boolean(), float: pl.Float64(), str: pl.String(), type(None): pl.Null()}
_NUMBERS = (pl.Int64(), pl.Int128(), pl.Float64())


def write_parquet(lines: Path, target: Path) -> None:
    """Write the records of a file of compact JSON.

    Columns take the smallest type that fits all values; where these have no common type, or one that few programs read, it is
    text, with JSON of what is none. Halves of characters, which Parquet has not, become U+FFFD.

    Raises:
        PolarsError: no record has a field.
    """
    if not lines.stat().st_size:
        pl.DataFrame().write_parquet(target)
    elif not _is_written_by_polars(lines, target):
        _write_by_record(lines, target)


def _is_written_by_polars(lines: Path, target: Path) -> bool:
    """Return False where Polars cannot read the records, or has types of its own."""
    if any(_ODD_NUMBER.search(piece) or _HALF.search(piece) for piece in _pieces(lines)):
        return False
    frame = pl.scan_ndjson(lines, infer_schema_length=None)
    tried = target.with_name(f"{target.name}.tried")  # Polars may write to it even after an error
    try:
        schema = frame.collect_schema()
        if not schema or not all(_is_portable(each, MOST_NESTED) for each in schema.dtypes()):
            return False
        frame.sink_parquet(tried)
        tried.replace(target)
    except (pl.exceptions.PolarsError, RecursionError):
        return False
    finally:
        tried.unlink(missing_ok=True)
    return True


def _is_portable(dtype: Any, depth: int) -> bool:
    """Return True if other programs read a type from Parquet, with `depth` levels at most."""
    if isinstance(dtype, pl.List):
        return depth > 0 and _is_portable(dtype.inner, depth - 1)
    if isinstance(dtype, pl.Struct):
        return depth > 0 and bool(dtype.fields) and all(_is_portable(each.dtype, depth - 1) for each in dtype.fields)
    return bool(dtype != pl.Int128)


def _write_by_record(lines: Path, target: Path) -> None:
    import pyarrow.parquet as pq

    schema: dict[str, pl.DataType] = {}
    for rows in _rows(lines):
        for row in rows:
            for name, value in row.items():
                schema[name] = _united(schema.get(name, pl.Null()), _type_of(value, MOST_NESTED))
    if not schema:
        raise pl.exceptions.NoDataError("they have no fields")
    schema = {name: _finished(dtype) for name, dtype in schema.items()}
    with pq.ParquetWriter(target, pl.DataFrame(schema=schema).to_arrow().schema) as writer:
        for rows in _rows(lines):
            columns = {name: [_fitted(row.get(name), dtype) for row in rows] for name, dtype in schema.items()}
            writer.write_table(pl.DataFrame(columns, schema=schema).to_arrow())


def _type_of(value: Any, depth: int) -> pl.DataType:
    """Return the smallest type of a value, nested in at most `depth` levels."""
    if type(value) is int:
        return pl.Int64() if -(2**63) <= value < 2**63 else pl.Int128()
    if depth and type(value) is list:
        inner: pl.DataType = pl.Null()
        for each in value:
            inner = _united(inner, _type_of(each, depth - 1))
        return pl.List(inner)
    if depth and type(value) is dict:
        return pl.Struct({name: _type_of(each, depth - 1) for name, each in value.items()})
    return _SCALARS.get(type(value), pl.String())


def _united(first: Any, second: Any) -> pl.DataType:
    """Return the smallest type that fits the values of two types."""
    if second in (first, pl.Null):
        return first  # type: ignore[no-any-return]
    if first == pl.Null:
        return second  # type: ignore[no-any-return]
    if first in _NUMBERS and second in _NUMBERS:
        return pl.Float64() if pl.Float64() in (first, second) else pl.Int128()
    if isinstance(first, pl.List) and isinstance(second, pl.List):
        return pl.List(_united(first.inner, second.inner))
    if isinstance(first, pl.Struct) and isinstance(second, pl.Struct):
        fields = {each.name: each.dtype for each in first.fields}
        for each in second.fields:
            fields[each.name] = _united(fields.get(each.name, pl.Null()), each.dtype)
        return pl.Struct(fields)
    return pl.String()


def _finished(dtype: Any) -> pl.DataType:
    """Return a type with text in place of types that Parquet has not.

    These are objects without fields and integers of more than 64 bits.
    """
    if isinstance(dtype, pl.List):
        return pl.List(_finished(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({each.name: _finished(each.dtype) for each in dtype.fields}) if dtype.fields else pl.String()
    return pl.String() if dtype == pl.Int128 else dtype


def _fitted(value: Any, dtype: Any) -> Any:
    """Return a value as one of a type that fits it."""
    if value is None:
        return None
    if dtype == pl.String:
        return value if type(value) is str else dump(value).decode()
    if isinstance(dtype, pl.List):
        return [_fitted(each, dtype.inner) for each in value]
    if isinstance(dtype, pl.Struct):
        return {each.name: _fitted(value.get(each.name), each.dtype) for each in dtype.fields}
    return float(value) if dtype == pl.Float64 else value


def _rows(lines: Path) -> Iterator[list[dict[str, Any]]]:
    for piece in _pieces(lines):
        yield [parse(line) for line in _plain(piece).split(b"\n") if line]


def _plain(piece: bytes) -> bytes:
    return _HALF.sub(rb"\1\\ufffd", piece)


def _pieces(lines: Path) -> Iterable[bytes]:
    with lines.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece + file.readline()
