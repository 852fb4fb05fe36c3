"""List columns of runs and blocks: the elements at some rows, as NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from umbel.state.runs.addresses import expanded
from umbel.state.runs.stored_columns import StoredColumn
from umbel.state.values import Array, Ints, Values, units

if TYPE_CHECKING:
    from collections.abc import Iterable

_VIEWS = pl.CompatLevel.newest()


class StoredLists:
    """A list column as stored: the bounds of each list, and all elements.

    Nothing is copied but the elements that are read.

    Args:
        array: the whole column.
        dtype: its type.
    """

    __slots__ = ("_bounds", "_dtype", "_lists", "_numbers", "_texts")

    def __init__(self, array: pa.Array, dtype: pl.DataType) -> None:
        assert isinstance(dtype, pl.List)
        inner: Any = dtype.inner
        self._dtype: pl.DataType = inner() if isinstance(inner, type) else inner
        width = np.int64 if pa.types.is_large_list(array.type) else np.int32  # of older runs they may be short
        self._bounds: Array = (
            np.frombuffer(array.buffers()[1], width)[array.offset :] if len(array) else np.zeros(1, width)
        )
        self._lists, elements = StoredColumn(array), array.values
        self._numbers = StoredColumn(elements)
        self._texts: pa.Array | pl.Series | None = elements if self._dtype in (pl.String, pl.Binary) else None
        if pa.types.is_string_view(elements.type) or pa.types.is_binary_view(elements.type):  # Arrow cannot take these
            self._texts = pl.Series(elements)

    @classmethod
    def of(cls, column: pl.Series) -> StoredLists:
        """Return the lists of a column in memory."""
        return cls(column.to_arrow(compat_level=_VIEWS), column.dtype)

    def at(self, rows: Ints) -> tuple[Values, Ints]:
        """Return the elements of the lists at some rows, and each list's length.

        A null list has no elements.
        """
        low, high = self._bounds[rows].astype(np.int64), self._bounds[rows + 1].astype(np.int64)
        if self._lists.has_nulls:
            high = np.where(self._lists.nulls(rows), low, high)
        places, _ = expanded(low, high)
        nulls = self._numbers.nulls(places)
        stored = self._numbers.values(places) if self._texts is None else _objects(self._texts, places)
        if self._texts is not None:
            stored[nulls] = "" if self._dtype == pl.String else b""
        return Values(units(stored) if isinstance(self._dtype, pl.Decimal) else stored, nulls, self._dtype), high - low


def _objects(texts: pa.Array | pl.Series, places: Ints) -> Array:
    found = np.empty(len(places), object)
    found[:] = texts[places].to_list() if isinstance(texts, pl.Series) else texts.take(pa.array(places)).to_pylist()
    return found


def joined(parts: Iterable[tuple[Ints, Values, Ints]]) -> tuple[Values, Ints]:
    """Return the elements of lists from several sources in one order, and each list's length.

    Args:
        parts: of each source, which are not none, the positions of its lists in that order, their elements and lengths.
    """
    positions, values, lengths = zip(*parts, strict=True)
    order = np.concatenate(positions).argsort()
    counts = np.concatenate(lengths)
    ends = counts.cumsum()
    places, _ = expanded((ends - counts)[order], ends[order])
    stored = np.concatenate([each.stored for each in values])[places]
    return Values(stored, np.concatenate([each.nulls for each in values])[places], values[0].dtype), counts[order]
