"""Columns of fixed width of runs and blocks, as NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from umbel.state.values import HALVES, Array, Flags, Ints

if TYPE_CHECKING:
    from collections.abc import Iterable

    from umbel.state.runs.packing import PackedNumbers


class NullBits:
    """The null bitmap of a column; columns of one source with equal bitmaps share it.

    Args:
        bits: 1 for each value that is not null.
        offset: of the first one.
    """

    __slots__ = ("_bits", "_offset")

    def __init__(self, bits: Array, offset: int) -> None:
        self._bits, self._offset = bits, offset

    def at(self, rows: Ints | slice) -> Flags:
        """Return a mask of the nulls among some values."""
        found: Flags = _bits_at(self._bits, self._offset, rows) == 0
        return found

    def is_same(self, other: NullBits) -> bool:
        """Return True if another bitmap has the same bytes."""
        return self._offset == other._offset and np.array_equal(self._bits, other._bits)


class StoredColumn:
    """A column as stored: fixed-width values or booleans; of others the nulls.

    Args:
        array: the whole column; None if there are no nulls, and the numbers are given.
        numbers: its values, if they are not those of the array.
    """

    __slots__ = ("_bits", "_offset", "null_bits", "numbers")

    def __init__(self, array: pa.Array | None, numbers: Array | PackedNumbers | None = None) -> None:
        self.numbers = numbers
        """Values of fixed width; at nulls they are undefined. None for other columns."""
        self._offset, self._bits = 0, None
        self.null_bits: NullBits | None = None
        """Which values are null; None if none is."""
        if array is None:
            return
        buffers, width, self._offset = array.buffers(), width_of(array.type), array.offset
        if array.null_count:
            self.null_bits = NullBits(np.frombuffer(buffers[0], np.uint8), array.offset)
        if pa.types.is_boolean(array.type):
            self._bits = np.frombuffer(buffers[1], np.uint8) if len(array) else np.zeros(0, np.uint8)
        elif width is not None and numbers is None:
            start = array.offset * width.itemsize
            self.numbers = np.frombuffer(buffers[1], width, len(array), start) if len(array) else np.zeros(0, width)

    def sharing(self, others: Iterable[StoredColumn]) -> StoredColumn:
        """Return the column, with the null bitmap of another one if they are equal.

        Args:
            others: columns of the same source.
        """
        own = self.null_bits
        if own is not None:
            shared = (each.null_bits for each in others if each.null_bits is not None)
            self.null_bits = next((each for each in shared if each.is_same(own)), own)
        return self

    @property
    def has_nulls(self) -> bool:
        """True if some value is null."""
        return self.null_bits is not None

    def raw(self, rows: Ints | slice) -> Array:
        """Return some values as stored, undefined for null."""
        if self.numbers is not None:
            return self.numbers[rows]
        found: Array = (_bits_at(self._bits, self._offset, rows) != 0).view(np.uint8)
        return found

    def values(self, rows: Ints | slice) -> Array:
        """Return some values as stored, 0 for null.

        A decimal has two halves, booleans are bytes.
        """
        found = self.raw(rows)
        return found if self.null_bits is None else zeroed(found, self.null_bits.at(rows))

    def nulls(self, rows: Ints | slice) -> Flags:
        """Return a mask of the nulls among some values."""
        if self.null_bits is None:
            return np.zeros(rows.stop - rows.start if isinstance(rows, slice) else len(rows), np.bool_)
        return self.null_bits.at(rows)


def zeroed(values: Array, nulls: Flags) -> Array:
    """Return values with 0 at nulls."""
    if np.count_nonzero(nulls):
        values = values.copy()
        values[nulls] = 0
    return values


_MASKS = np.left_shift(1, np.arange(8), dtype=np.uint8, casting="unsafe")


def _bits_at(bits: Any, offset: int, rows: Ints | slice) -> Array:
    """Return some bits, each as a byte that is 0 or not."""
    if isinstance(rows, slice):
        low, high = rows.start + offset, rows.stop + offset
        found: Array = np.unpackbits(bits[low >> 3 : (high + 7) >> 3], bitorder="little")
        return found[low & 7 : (low & 7) + high - low]
    places = rows + offset if offset else rows
    return np.asarray(bits[places >> 3] & _MASKS[places & 7])


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
