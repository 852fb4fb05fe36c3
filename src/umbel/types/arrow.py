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


def polars_of(rows: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    """Return rows of others, whose types Polars need not know.

    Time zones that are offsets become UTC. Decimals of more than 38 digits become decimals of 38 where all values fit, else text.
    """
    import pyarrow as pa

    columns = [_with_known_type(column) for column in rows.columns]
    return pl.DataFrame(pl.from_arrow(pa.Table.from_arrays(columns, names=rows.schema.names)))


def _with_known_type(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    import pyarrow as pa

    target = _known(column.type)
    if target == column.type:
        return column
    try:
        return column.cast(target)
    except pa.ArrowInvalid:
        return column.cast(pa.string()) if pa.types.is_decimal256(column.type) else column


def _known(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same values that Polars knows."""
    import pyarrow as pa

    if pa.types.is_decimal256(kind):
        return pa.decimal128(38, kind.scale) if abs(kind.scale) <= 38 else pa.string()
    if pa.types.is_timestamp(kind) and kind.tz is not None and kind.tz[:1] in "+-":
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_known(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_known(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _known(each.type), each.nullable) for each in kind])
    return kind
