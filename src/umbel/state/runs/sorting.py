"""Orders of rows by columns of whole numbers.

NumPy sorts numbers of 64 bits with vector instructions, several times faster than it finds their stable order. So numbers are
sorted with the place of each behind them, in the last bits; longer ones by the bits that fit, the last bits first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

COMPARED = 1000
"""Up to so many numbers are sorted by comparisons."""
_BITS = 63


def order_of_numbers(numbers: NDArray[Any]) -> Ints:
    """Return the stable order of non-negative whole numbers of 64 bits."""
    if len(numbers) <= COMPARED:
        return numbers.argsort(kind="stable")
    if (numbers[1:] >= numbers[:-1]).all():
        return np.arange(len(numbers))
    places = (len(numbers) - 1).bit_length()
    bits, digit = int(numbers.max()).bit_length(), _BITS - places
    order = _order_of_digits(numbers, 0, digit)
    for begin in range(digit, bits, digit):
        order = order[_order_of_digits(numbers[order], begin, digit)]
    return order


def _order_of_digits(numbers: NDArray[Any], begin: int, bits: int) -> Ints:
    """Return the stable order of numbers by some of their bits.

    Those leave room for the places of the numbers.
    """
    places = _BITS - bits
    digits: Ints = ((numbers >> begin) & ((1 << bits) - 1)).astype(np.int64, copy=False)
    digits <<= places
    digits |= np.arange(len(digits))
    digits.sort()
    digits &= (1 << places) - 1
    return digits


def order_of(*columns: Ints) -> Ints:
    """Return the stable order of rows by some columns of integers, the most significant first.

    They are packed into one number where possible, which sorts faster; else they are sorted by each in turn, the last one first.
    """
    packed = packed_numbers(columns)
    if packed is not None:
        return order_of_numbers(packed)
    order = order_of_numbers(_from_zero(columns[-1]))
    for column in reversed(columns[:-1]):
        order = order[order_of_numbers(_from_zero(column)[order])]
    return order


def _from_zero(column: Ints) -> NDArray[np.uint64]:
    """Return the distances of numbers from the smallest one."""
    numbers = column.astype(np.uint64)  # 63 bits may be too few for them
    numbers -= numbers[column.argmin()]
    return numbers


def packed_numbers(columns: Sequence[Ints]) -> Ints | None:
    """Return one number for each row with the same order as some columns.

    The first column is the most significant one. None where 63 bits are not enough.
    """
    first = columns[0]
    packed, size = np.zeros(len(first), np.int64), 1
    for column in columns if len(first) else ():
        low = int(column.min())
        span = int(column.max()) - low + 1
        size *= span
        if size >= 1 << 63:
            return None
        if span > 1:
            packed *= span
            packed += (column - low).astype(np.int64, copy=False)
    return packed


def gathered(rows: pl.DataFrame, places: Ints) -> pl.DataFrame:
    """Return some rows in the order given.

    All of them exist: an index that may be negative would be checked.
    """
    return rows[pl.Series(places.astype(np.uint32))]
