"""Columns of fixed width of runs and blocks, as NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from umbel.state.values import HALVES, Array, Flags, Ints

if TYPE_CHECKING:
    from umbel.state.runs.packing import PackedNumbers


class StoredColumn:
    """A column as stored: fixed-width values or booleans; of others the nulls.

    Args:
        array: the whole column; None if there are no nulls, and the numbers are given.
        numbers: its values, if they are not those of the array.
    """

    __slots__ = ("_bits", "_offset", "_valid", "numbers")

    def __init__(self, array: pa.Array | None, numbers: Array | PackedNumbers | None = None) -> None:
        self.numbers = numbers
        """Values of fixed width; at nulls they are undefined. None for other columns."""
        self._offset, self._valid, self._bits = 0, None, None
        if array is None:
            return
        buffers, width, self._offset = array.buffers(), width_of(array.type), array.offset
        self._valid = np.frombuffer(buffers[0], np.uint8) if array.null_count else None
        if pa.types.is_boolean(array.type):
            self._bits = np.frombuffer(buffers[1], np.uint8) if len(array) else np.zeros(0, np.uint8)
        elif width is not None and numbers is None:
            start = array.offset * width.itemsize
            self.numbers = np.frombuffer(buffers[1], width, len(array), start) if len(array) else np.zeros(0, width)

    @property
    def has_nulls(self) -> bool:
        """True if some value is null."""
        return self._valid is not None

    def values(self, rows: Ints | slice) -> Array:
        """Return some values as stored, 0 for null.

        A decimal has two halves, booleans are bytes.
        """
        found = _bits_at(self._bits, self._offset, rows) if self.numbers is None else self.numbers[rows]
        if self._valid is not None:
            nulls = self.nulls(rows)
            if np.count_nonzero(nulls):
                found = found.copy()
                found[nulls] = 0
        return found

    def nulls(self, rows: Ints | slice) -> Flags:
        """Return a mask of the nulls among some values."""
        if self._valid is None:
            return np.zeros(rows.stop - rows.start if isinstance(rows, slice) else len(rows), np.bool_)
        found: Flags = _bits_at(self._valid, self._offset, rows) == 0
        return found


def _bits_at(bits: Any, offset: int, rows: Ints | slice) -> Array:
    if isinstance(rows, slice):
        low, high = rows.start + offset, rows.stop + offset
        found: Array = np.unpackbits(bits[low >> 3 : (high + 7) >> 3], bitorder="little")
        return found[low & 7 : (low & 7) + high - low]
    places = rows + offset
    found = (bits[places >> 3] >> (places & 7).astype(np.uint8)) & 1
    return np.asarray(found)


def width_of(kind: pa.DataType) -> np.dtype[Any] | None:
    """Return the NumPy type of stored values; None if of no fixed width, or bits."""
    if pa.types.is_decimal(kind):
        return HALVES
    if pa.types.is_floating(kind):
        return np.dtype(f"<f{kind.bit_width // 8}")
    if pa.types.is_temporal(kind) or pa.types.is_signed_integer(kind):
        return np.dtype(f"<i{kind.bit_width // 8}")
    return np.dtype(f"<u{kind.bit_width // 8}") if pa.types.is_unsigned_integer(kind) else None


def fixed_values(column: pa.Array) -> Array:
    """Return a column of fixed width as stored, 0 for null; booleans as bytes."""
    return StoredColumn(column).values(slice(0, len(column)))
