"""Rows of data frames as lines of JSON, as Python writes their values."""

from __future__ import annotations

import io
from typing import Any

import polars as pl

from umbel.errors import NotSupported
from umbel.transform.values import dump

_OF_JSON: dict[Any, pl.DataType] = {pl.Float32: pl.Float64(), pl.Time: pl.String()}


def lines_of(frame: pl.DataFrame) -> bytes:
    """Return the rows of a frame, each as a JSON object with a newline.

    Instants are RFC 3339 in UTC, durations ISO 8601; NaN and infinities are numbers.

    Raises:
        NotSupported: a column has durations inside of lists or objects.
    """
    frame = frame.with_columns(pl.col(pl.Duration).dt.to_string("iso"))
    for name, dtype in frame.schema.items():
        if "Duration" in str(dtype):
            raise NotSupported(f"column '{name}' is {dtype}: JSON has no durations", hint="cast it to a number")
    plain = frame.with_columns(
        pl.col(name).cast(_json_type(dtype)) for name, dtype in frame.schema.items() if _json_type(dtype) != dtype
    )
    if not all(map(_is_plain, plain.iter_columns())):
        return b"".join(dump(row) + b"\n" for row in plain.iter_rows(named=True))
    plain = plain.with_columns(
        _instant(pl.col(name), dtype) for name, dtype in plain.schema.items() if _is_instant(dtype)
    )
    target = io.BytesIO()
    plain.write_ndjson(target)
    return target.getvalue()


def instant_texts(instants: pl.Expr) -> pl.Expr:
    """Return naive instants in RFC 3339, with a fraction of seconds where there is one."""
    whole = instants.dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    parts = instants.dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
    return pl.when(instants.dt.microsecond() == 0).then(whole).otherwise(parts)


def _is_instant(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Datetime)


def _instant(column: pl.Expr, dtype: Any) -> pl.Expr:
    utc = column if dtype.time_zone is None else column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return instant_texts(utc.dt.cast_time_unit("us"))


def _json_type(dtype: Any) -> Any:
    """Return a type that JSON has values for.

    These are floats of 64 bits, as Python's, and texts for times of a day.
    """
    if isinstance(dtype, pl.List):
        return pl.List(_json_type(dtype.inner))
    if isinstance(dtype, pl.Array):
        return pl.Array(_json_type(dtype.inner), dtype.size)
    if isinstance(dtype, pl.Struct):
        return pl.Struct({each.name: _json_type(each.dtype) for each in dtype.fields})
    return _OF_JSON.get(dtype.base_type(), dtype)


def _is_plain(column: pl.Series, depth: int = 0) -> bool:
    """Return True if Polars writes the values of a column as Python does."""
    if isinstance(column.dtype, pl.List | pl.Array):
        return _is_plain(column.explode(), depth + 1)
    if isinstance(column.dtype, pl.Struct):
        return all(_is_plain(each, depth + 1) for each in column.struct.unnest().iter_columns())
    if _is_instant(column.dtype):
        years = column.dt.year().drop_nulls()
        return not depth and bool(years.is_between(1000, 9999).all())
    return not column.dtype.is_float() or bool(column.is_finite().all())
