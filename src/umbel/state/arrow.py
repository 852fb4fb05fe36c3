"""Convert between Polars columns, Arrow binary arrays and their buffers.

This is the only module that reads Arrow buffers directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]

_PLAIN = pl.CompatLevel.oldest()
_NOTHING = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")])[0]
"""Empty bytes as a scalar. `pa.scalar` would load pandas, a fifth of a command's time to start."""


def binary_array(column: pl.Series) -> pa.LargeBinaryArray:
    """Return a String or Binary column as an Arrow binary array; null becomes empty bytes."""
    filled = column.fill_null("" if column.dtype == pl.String else b"") if column.null_count() else column
    array = filled.to_arrow(compat_level=_PLAIN)
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(array), array.buffers(), 0, array.offset)


def binary_parts(array: pa.LargeBinaryArray) -> tuple[Offsets, Bytes]:
    """Return the offsets (one more than the number of values) and the data bytes."""
    if not len(array):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offsets, data = array.buffers()
    return np.frombuffer(offsets, np.int64, len(array) + 1, 8 * array.offset), np.frombuffer(data or b"", np.uint8)


def binary_of(offsets: Offsets, data: Bytes) -> pa.LargeBinaryArray:
    """Return the array of the bytes between consecutive offsets, without a copy."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def fixed_binary(matrix: Bytes) -> pa.LargeBinaryArray:
    """Return the rows of a matrix of bytes as an array."""
    rows, width = matrix.shape
    return binary_of(np.arange(rows + 1, dtype=np.int64) * width, np.ascontiguousarray(matrix).reshape(-1))


def join_rows(arrays: Sequence[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    """Concatenate the bytes of all arrays row by row."""
    return arrays[0] if len(arrays) == 1 else pc.binary_join_element_wise(*arrays, _NOTHING)


def stored_of(column: pl.Series, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return Arrow's stored bytes of each value of a fixed-width column.

    At nulls the bytes are undefined.
    """
    array = column.to_arrow()
    if not len(array):
        return np.zeros(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


def numbers_of(column: pl.Series) -> NDArray[Any]:
    """Return a column's physical numbers, 0 for null."""
    stored = column.to_physical()
    return (stored.fill_null(0) if stored.null_count() else stored).to_numpy()


def nulls_of(column: pl.Series) -> NDArray[np.bool_] | None:
    """Return a mask of the null rows; None if there are no nulls."""
    return column.is_null().to_numpy() if column.null_count() else None


def table_of(frame: pl.DataFrame) -> pa.Table:
    """Return a frame as a table that Arrow can write as a stream or file.

    The values of lists that are all empty can be a slice of nothing that begins behind other values, whose size in bytes is
    unknown: Arrow writes a negative one (pyarrow 26), and nobody can read the file. Such columns are copied.
    """
    table = frame.to_arrow(compat_level=_PLAIN)
    for place, field in enumerate(table.schema):
        if pa.types.is_nested(field.type) and any(map(_has_slice_of_nothing, table.column(place).chunks)):
            table = table.set_column(place, field, table.column(place).take(np.arange(len(table))))
    return table


def _has_slice_of_nothing(array: pa.Array) -> bool:
    kind = array.type
    if not len(array) and array.offset:
        return True
    if pa.types.is_struct(kind):
        return any(_has_slice_of_nothing(array.field(place)) for place in range(kind.num_fields))
    return pa.types.is_nested(kind) and _has_slice_of_nothing(array.values)


def to_series(array: Any, name: str) -> pl.Series:
    """Return an Arrow array as a Polars column."""
    column = pl.from_arrow(array)
    assert isinstance(column, pl.Series)
    return column.alias(name)
