"""Stored values as NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
Array = NDArray[Any]

HALVES = np.dtype(("<u8", (2,)))
"""A decimal: its low and its high half."""


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one type, side by side.

    Args:
        stored: numbers as they are stored (for a decimal its units), or text and bytes as Python objects; undefined at nulls.
        nulls: mask of the null values.
        dtype: the type.
    """

    stored: Array
    nulls: Flags
    dtype: pl.DataType

    def ranked(self) -> tuple[list[Any], Ints]:
        """Return the distinct values in order, null first, and each value's index among them."""
        different, positions = np.unique(self.stored, return_inverse=True)
        codes: Ints = positions.reshape(-1).astype(np.int64) + 1
        codes[self.nulls] = 0
        return [None, *shown(different, self.dtype)], codes


def units(halves: Array) -> Array:
    """Return decimals in units of their last digit.

    They are 64-bit integers if all fit, else Python integers.
    """
    low, high = halves[:, 0].view(np.int64), halves[:, 1].view(np.int64)
    if (high == low >> 63).all():
        return low
    pairs = zip(halves[:, 0].tolist(), high.tolist(), strict=True)
    return np.array([(upper << 64) + lower for lower, upper in pairs], object)


def shown(stored: Array, dtype: pl.DataType) -> list[Any]:
    """Return stored values as Polars returns them in Python."""
    if isinstance(dtype, pl.Decimal):
        return [Decimal(f"{value}e-{dtype.scale}") for value in stored.tolist()]
    if dtype.is_temporal():
        physical = pl.Series(stored.astype(np.int32 if dtype == pl.Date else np.int64))
        return physical.cast(dtype).to_list()
    plain: list[Any] = (stored != 0 if dtype == pl.Boolean else stored).tolist()
    return plain
