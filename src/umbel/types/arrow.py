"""Conversion of Arrow tables read from and written to files and Delta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from umbel.errors import InvalidValue
from umbel.types.dtype import DType

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema(dtypes: Mapping[str, DType]) -> pa.Schema:
    """Return the Arrow schema of stored columns; a Dict is a list of (key, value)."""
    return pl.DataFrame(schema={name: dtype.polars() for name, dtype in dtypes.items()}).to_arrow().schema


def from_arrow(table: pa.Table, dtypes: Mapping[str, DType]) -> pl.DataFrame:
    """Return the columns of `dtypes` of a table written by umbel, in storage form.

    File formats preserve the values but not every type: a vector is read back as a list.

    Raises:
        InvalidValue: a value does not belong to its type; names the column and the type.
    """
    frame = pl.DataFrame(pl.from_arrow(table.select(list(dtypes))))
    columns = []
    for name, dtype in dtypes.items():
        checked = dtype.convert(frame[name])
        if checked.errors:
            row, reason = min(checked.errors.items())
            raise InvalidValue(f"column '{name}' of type {dtype}: {reason} (row {row})")
        columns.append(checked.values.alias(name))
    return pl.DataFrame(columns)
