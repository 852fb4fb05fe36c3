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

    Time zones become UTC. Decimals of more than 38 digits become decimals of 38 where all values fit, else text.
    """
    import pyarrow as pa

    columns = [_with_known_type(column) for column in rows.columns]
    return pl.DataFrame(pl.from_arrow(pa.Table.from_arrays(columns, names=rows.schema.names)))


def check_texts(rows: pa.RecordBatch | pa.Table, subject: str) -> None:
    """Refuse rows with texts that are not UTF-8, which Arrow's readers do not see.

    Args:
        rows: of others.
        subject: has them, for messages.

    Raises:
        InvalidValue: names the column.
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if not _is_valid(column):
            raise InvalidValue(f"{subject}: column '{name}' has a text that is not UTF-8", hint="see what wrote it")


def without_broken_texts(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[str, list[int]]]:
    """Return rows with null for each value that has a text that is not UTF-8.

    Also returns the numbers of the rows that had one, by column.
    """
    import pyarrow as pa

    found, columns = dict[str, list[int]](), list[pa.Array]()
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if _is_valid(column):
            columns.append(column)
            continue
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        found[name] = _broken(plain, 0)
        broken = frozenset(found[name])
        columns.append(plain.take(pa.array([None if row in broken else row for row in range(len(plain))], pa.int64())))
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names), found


def _broken(column: pa.Array, first: int) -> list[int]:
    """Return the numbers of broken values, by halves."""
    import pyarrow as pa

    if _is_valid(column):
        return []
    if len(column) == 1:
        return [first]
    half = len(column) // 2
    parts = (range(half), 0), (range(half, len(column)), half)
    return [row for part, begin in parts for row in _broken(column.take(pa.array(part)), first + begin)]


def _is_valid(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return False if a column has a text that is not UTF-8."""
    import pyarrow as pa

    if not _has_text(column.type):
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _has_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are texts, or have some inside."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _has_text(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    if any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)):
        return True
    return any(_has_text(kind.field(place).type) for place in range(kind.num_fields))


def _with_known_type(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    import pyarrow as pa

    target = _known(column.type, 38)
    if target == column.type:
        return column
    try:
        return column.cast(target)
    except pa.ArrowInvalid:  # a decimal has more digits
        return column.cast(_known(column.type, 0))


def _known(kind: pa.DataType, digits: int) -> pa.DataType:
    """Return the type of the same values that Polars knows.

    Args:
        kind: the type of others.
        digits: of a decimal, at most; a longer one is text.
    """
    import pyarrow as pa

    if pa.types.is_decimal256(kind):
        return pa.decimal128(digits, kind.scale) if abs(kind.scale) <= digits else pa.string()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")  # Arrow takes any text for a zone, and offsets
    if pa.types.is_map(kind):
        return pa.map_(_known(kind.key_type, digits), kind.item_field.with_type(_known(kind.item_type, digits)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_known(kind.value_type, digits), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(_known(kind.value_type, digits))
    if pa.types.is_large_list(kind):
        return pa.large_list(_known(kind.value_type, digits))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_known(each.type, digits)) for each in kind])
    return kind
