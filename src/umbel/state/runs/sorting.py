"""Orders of rows by columns of whole numbers, sorted by their digits of 16 bits.

NumPy sorts numbers of 16 bits by counting them. One such pass for each digit takes half of the time of a comparison sort of
numbers of 64 bits. Few numbers, and those of which most are in order already, such as instants, are sorted faster by
comparisons: NumPy's stable sort of 64 bits merges runs (Timsort).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

COMPARED = 8192
"""Up to so many numbers are sorted by comparisons."""
_BITS = 16
_LATE = 0.1
"""Up to this share of numbers below an earlier one, the order is found by comparisons."""


def order_of_numbers(numbers: NDArray[Any]) -> Ints:
    """Return the stable order of non-negative whole numbers of 64 bits."""
    if len(numbers) <= COMPARED or _is_nearly_sorted(numbers):
        return numbers.argsort(kind="stable")
    digits = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<")).view(np.uint16).reshape(-1, 64 // _BITS)
    order, used = digits[:, 0].argsort(kind="stable"), int(numbers.max())
    for place in range(1, 64 // _BITS):
        if used >> place * _BITS:
            order = order[digits[:, place][order].argsort(kind="stable")]
    return order


def _is_nearly_sorted(numbers: NDArray[Any]) -> bool:
    """Return whether few numbers are below an earlier one.

    The first numbers are examined first: most orders show there.
    """
    for part in (numbers[:COMPARED], numbers):
        if np.count_nonzero(part < np.maximum.accumulate(part)) > _LATE * len(part):
            return False
    return True


def order_of(*columns: Ints) -> Ints:
    """Return the order of rows by some columns, the most significant first.

    They are packed into one number where possible, which sorts faster.
    """
    packed = packed_numbers(columns)
    return np.lexsort(columns[::-1]) if packed is None else order_of_numbers(packed)


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
