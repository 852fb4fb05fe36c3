"""Records: the rows of one stored group as numpy sees them, without building a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Array = NDArray[Any]

NULLS = "nulls"
HALVES = np.dtype(("<u8", (2,)))
"""A decimal: its low and its high half."""


@dataclass(frozen=True, slots=True)
class Records:
    """Rows whose columns of fixed width are read as arrays; of a decimal, as its two halves. What is null is 0.

    Args:
        rows: the records, one field for each column of fixed width.
        places: the number of each column's null mark.
    """

    rows: Array
    places: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> Array:
        found: Array = self.rows[name]
        return found

    def present(self, name: str) -> Array:
        """Return the values of a column that are not null."""
        place, values = self.places[name], self[name]
        nulls: Array = self.rows[NULLS][:, place // 8] & np.uint8(1 << place % 8)
        return values[nulls == 0] if nulls.any() else values

    def total(self, name: str) -> int:
        """Return the exact sum of a column of decimals, in units of their last digit."""
        halves = self[name]
        low, high = halves[:, 0], halves[:, 1].view(np.int64)
        upper = int((low >> np.uint64(32)).sum()) + (_sum(high) << 32)
        return int((low & np.uint64(0xFFFFFFFF)).sum()) + (upper << 32)

    def where(self, chosen: slice | Flags) -> Records:
        """Return some of the rows."""
        return Records(self.rows[chosen], self.places)


def _sum(high: Array) -> int:
    """Return the sum of numbers that may be too large for one."""
    return int((high >> 32).sum() << 32) + int((high & 0xFFFFFFFF).sum()) if len(high) else 0


def readable(record: np.dtype[Any], columns: Sequence[tuple[str, int, pl.DataType]]) -> np.dtype[Any]:
    """Return a record's type with the columns of fixed width under their names and in their types.

    Args:
        record: as stored, fields named by place.
        columns: name, place and type of each column.
    """
    assert record.fields is not None
    named = {NULLS: (record.fields[NULLS][0], record.fields[NULLS][1])}
    for name, place, dtype in columns:
        stored, start = record.fields[f"{place}"][:2]
        named[name] = (_read_as(stored, dtype), start)
    kinds, starts = zip(*named.values(), strict=True)
    return np.dtype(
        {"names": list(named), "formats": list(kinds), "offsets": list(starts), "itemsize": record.itemsize}
    )


def _read_as(stored: np.dtype[Any], dtype: pl.DataType) -> np.dtype[Any]:
    if stored.itemsize == HALVES.itemsize:
        return HALVES
    if dtype.is_float():
        return np.dtype(f"<f{stored.itemsize}")
    if dtype == pl.Boolean or dtype.is_unsigned_integer():
        return stored
    return np.dtype(f"<i{stored.itemsize}")
