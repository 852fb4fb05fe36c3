"""Rows of stored groups as numpy records, read without building a frame."""

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


class ListSpans(Protocol):
    """Reads the elements of lists from bytes."""

    def elements(self, data: Bytes, starts: Ints) -> tuple[Values, Ints]:
        """Return the concatenated elements of the lists at `starts`, and each list's length."""


@dataclass(frozen=True)
class Records:
    """The rows of some groups, one group after the other.

    In columns of fixed width null is stored as 0.

    Args:
        rows: the records, one field for each column of fixed width; for a column on the heap the number of bytes it takes there.
        counts: number of rows of each group.
        heap: the bytes of the heap.
        positions: the index of each column's null mark.
        heaps: the columns on the heap, in their order there, each with the reader of its elements, None if they cannot be read.
    """

    rows: Array
    counts: Ints
    heap: bytes
    positions: Mapping[str, int]
    heaps: Mapping[str, ListSpans | None]

    def __getitem__(self, name: str) -> Array:
        found: Array = self.rows[name]
        return found

    def nulls(self, name: str) -> Flags:
        """Return the null mask of a column."""
        position = self.positions[name]
        marks: Flags = (self.rows[NULLS][:, position // 8] & np.uint8(1 << position % 8)) != 0
        return marks

    def lists(self, name: str, rows: Ints) -> tuple[Values, Ints]:
        """Return the elements of a list column at some rows, and each list's length.

        A null list has no elements.
        """
        reader = self.heaps[name]
        assert reader is not None
        return reader.elements(self._data, self._starts(name)[rows])

    def binaries(self, name: str, rows: Ints) -> list[bytes | None]:
        """Return the bytes of a column at some rows."""
        starts = self._starts(name)[rows]
        ends, nulls = starts + self.rows[name][rows], self.nulls(name)[rows]
        spans = zip(starts.tolist(), ends.tolist(), nulls.tolist(), strict=True)
        return [None if is_null else self.heap[start:end] for start, end, is_null in spans]

    def _starts(self, name: str) -> Ints:
        """Return the heap offset of each row's bytes in a column."""
        return self._positions[:, list(self.heaps).index(name)]

    @cached_property
    def owners(self) -> Ints:
        """The group index of each row."""
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
    """Return the error for state with columns other than those it is read with."""
    return Terminal("state does not have the columns it is read with")


def units(halves: Array) -> Array:
    """Return decimals in units of their last digit.

    They are 64-bit integers if all fit, else Python integers.
    """
    low, high = halves[:, 0].view(np.int64), halves[:, 1].view(np.int64)
    if (high == low >> 63).all():
        return low
    pairs = zip(halves[:, 0].tolist(), high.tolist(), strict=True)
    return np.array([(upper << 64) + lower for lower, upper in pairs], object)


def texts(data: Bytes, ends: Ints, lengths: Array, *, is_text: bool) -> Array:
    """Return strings or bytes from a buffer by end offset and length."""
    states, spans = data.tobytes(), zip((ends - lengths).tolist(), ends.tolist(), strict=True)
    found = np.empty(len(ends), object)
    found[:] = [states[start:end].decode() for start, end in spans] if is_text else [states[a:b] for a, b in spans]
    return found


def shown(stored: Array, dtype: pl.DataType) -> list[Any]:
    """Return stored values as Polars returns them in Python."""
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
    """Return a record's dtype with fields named by column and fixed-width columns typed.

    Args:
        record: the dtype as stored, fields named by position.
        columns: name, position and type of each column of fixed width.
        heaps: name and position of each column on the heap.
    """
    assert record.fields is not None
    named = {NULLS: (record.fields[NULLS][0], record.fields[NULLS][1])}
    for name, position, dtype in columns:
        stored, start = record.fields[f"{position}"][:2]
        named[name] = (_read_as(stored, dtype), start)
    for name, position in heaps.items():
        named[name] = record.fields[f"{position}"][:2]
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
