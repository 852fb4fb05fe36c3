"""Conversion of vectors for tables: fixed-size arrays are stored as lists.

The open table format has lists, but no vectors of a fixed size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl


def stored(dtype: pl.DataType) -> pl.DataType:
    """Return a column's type in a table: fixed-size arrays become lists, at any depth."""
    if isinstance(dtype, pl.Array | pl.List):
        return pl.List(stored(_made(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: stored(_made(field.dtype)) for field in dtype.fields})
    return dtype


def stored_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame with its columns in their table types."""
    return frame.with_columns(
        column.cast(stored(column.dtype)) for column in frame if stored(column.dtype) != column.dtype
    )


def to_storage_frame(frame: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return a frame read from a table, cast back to its declared types."""
    known = {name: columns[name] for name in frame.columns if name in columns}
    return frame.with_columns(frame[name].cast(dtype) for name, dtype in known.items() if frame[name].dtype != dtype)


def _made(dtype: Any) -> pl.DataType:
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made
