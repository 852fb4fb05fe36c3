"""Records: the rows of stored groups as numpy sees them, without building a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from umbel.errors import Terminal

Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Array = NDArray[Any]

NULLS = "nulls"
HALVES = np.dtype(("<u8", (2,)))
"""A decimal: its low and its high half."""


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one type, side by side.

    Args:
        stored: numbers as they are stored (of a decimal its units), or text and bytes as Python has them; at nulls anything.
        nulls: which are null.
        dtype: the type.
    """

    stored: Array
    nulls: Flags
    dtype: pl.DataType

    def ranked(self) -> tuple[list[Any], Ints]:
        """Return the different values in order, null first, and the place of each value among them."""
        different, places = np.unique(self.stored, return_inverse=True)
        codes: Ints = places.reshape(-1).astype(np.int64) + 1
        codes[self.nulls] = 0
        return [None, *shown(different, self.dtype)], codes


class Listed(Protocol):
    """Reads the elements of lists from bytes."""

    def elements(self, data: Bytes, starts: Ints) -> tuple[Values, Ints]:
        """Return the elements of the lists that begin at `starts`, one list after the other, and how many each has."""


@dataclass(frozen=True)
class Records:
    """The rows of some groups, one group after the other. In columns of fixed width what is null is 0.

    Args:
        rows: the records, one field for each column of fixed width; of one on the heap, how many bytes it takes there.
        counts: how many rows each group has.
        heap: what is on the heap.
        places: the number of each column's null mark.
        heaps: the columns on the heap, in their order there; of those whose elements can be read, how.
    """

    rows: Array
    counts: Ints
    heap: bytes
    places: Mapping[str, int]
    heaps: Mapping[str, Listed | None]

    def __getitem__(self, name: str) -> Array:
        found: Array = self.rows[name]
        return found

    def nulls(self, name: str) -> Flags:
        """Return which values of a column are null."""
        place = self.places[name]
        marks: Flags = (self.rows[NULLS][:, place // 8] & np.uint8(1 << place % 8)) != 0
        return marks

    def lists(self, name: str, rows: Ints) -> tuple[Values, Ints]:
        """Return the elements of the lists some rows have in a column, and how many each has; null has none."""
        reader = self.heaps[name]
        assert reader is not None
        return reader.elements(self._data, self._starts(name)[rows])

    def binaries(self, name: str, rows: Ints) -> list[bytes | None]:
        """Return the bytes some rows have in a column."""
        starts = self._starts(name)[rows]
        ends, nulls = starts + self.rows[name][rows], self.nulls(name)[rows]
        spans = zip(starts.tolist(), ends.tolist(), nulls.tolist(), strict=True)
        return [None if is_null else self.heap[start:end] for start, end, is_null in spans]

    def _starts(self, name: str) -> Ints:
        """Return where each row's bytes of a column begin on the heap."""
        return self._positions[:, list(self.heaps).index(name)]

    @cached_property
    def owners(self) -> Ints:
        """The group of each row."""
        if len(self.counts) == 1:
            return np.zeros(len(self.rows), np.int64)
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def _data(self) -> Bytes:
        return np.frombuffer(self.heap, np.uint8)

    @cached_property
    def _positions(self) -> Ints:
        sizes = np.empty((len(self.rows), len(self.heaps)), np.int64)
        for number, name in enumerate(self.heaps):
            sizes[:, number] = self.rows[name]
        ends = sizes.ravel().cumsum()
        if len(self.heap) != (ends[-1] if len(ends) else 0):
            raise mismatch()
        return (ends - sizes.ravel()).reshape(sizes.shape)


def mismatch() -> Terminal:
    """Return the error that state has other columns than it is read with."""
    return Terminal("state does not have the columns it is read with")


def units(halves: Array) -> Array:
    """Return decimals in units of their last digit: as 64-bit integers where all fit, else as Python's."""
    low, high = halves[:, 0].view(np.int64), halves[:, 1].view(np.int64)
    if (high == low >> 63).all():
        return low
    pairs = zip(halves[:, 0].tolist(), high.tolist(), strict=True)
    return np.array([(upper << 64) + lower for lower, upper in pairs], object)


def texts(data: Bytes, ends: Ints, lengths: Array, *, is_text: bool) -> Array:
    """Return text, or bytes, that ends at some places of a buffer."""
    held, spans = data.tobytes(), zip((ends - lengths).tolist(), ends.tolist(), strict=True)
    found = np.empty(len(ends), object)
    found[:] = [held[start:end].decode() for start, end in spans] if is_text else [held[a:b] for a, b in spans]
    return found


def shown(stored: Array, dtype: pl.DataType) -> list[Any]:
    """Return stored values as Polars hands them out."""
    if isinstance(dtype, pl.Decimal):
        return [Decimal(f"{value}e-{dtype.scale}") for value in stored.tolist()]
    if dtype.is_temporal():
        physical = pl.Series(stored.astype(np.int32 if dtype == pl.Date else np.int64))
        return physical.cast(dtype).to_list()
    plain: list[Any] = (stored != 0 if dtype == pl.Boolean else stored).tolist()
    return plain


def readable(
    record: np.dtype[Any], columns: Sequence[tuple[str, int, pl.DataType]], heaps: Mapping[str, int]
) -> np.dtype[Any]:
    """Return a record's type with its columns under their names; those of fixed width in their types.

    Args:
        record: as stored, fields named by place.
        columns: name, place and type of each column of fixed width.
        heaps: name and place of each column on the heap.
    """
    assert record.fields is not None
    named = {NULLS: (record.fields[NULLS][0], record.fields[NULLS][1])}
    for name, place, dtype in columns:
        stored, start = record.fields[f"{place}"][:2]
        named[name] = (_read_as(stored, dtype), start)
    for name, place in heaps.items():
        named[name] = record.fields[f"{place}"][:2]
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
