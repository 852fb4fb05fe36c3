"""Blocks: sorted rows of one table in memory, read like runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from umbel.state.runs.addresses import Flags, Hashes, Ints, search_all
from umbel.state.runs.rules import HASH, KEY, REMOVED
from umbel.state.runs.stored_columns import StoredColumn
from umbel.state.runs.stored_lists import StoredLists

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

_PLAIN = pl.CompatLevel.oldest()
_SAMPLE_ROWS = 4096
"""Distance of the sampled hashes, in rows."""


class Block:
    """A sorted frame in memory, read like a run.

    Args:
        frame: rows sorted by address, with `_hash`.
    """

    __slots__ = ("_columns", "_hashes", "_lists", "_ordinals", "frame", "rows", "size")

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame, self.rows = frame.rechunk(), frame.height
        self.size = int(frame.estimated_size())
        self._hashes: Hashes = self.frame[HASH].to_numpy()
        self._columns: dict[str, StoredColumn] = {}
        self._lists: dict[str, StoredLists] = {}
        self._ordinals: dict[str, Ints] = {}

    @property
    def samples(self) -> Hashes:
        """Some of the hashes, in order."""
        return self._hashes[::_SAMPLE_ROWS]

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Return the range of rows of each hash, as first rows and ends."""
        return search_all(self._hashes, hashes)

    def take(self, rows: Ints) -> pl.DataFrame:
        """Return some rows, in the order given."""
        return self.frame[rows]

    def taken(self, name: str, rows: Ints | slice) -> pa.Array:
        """Return a column at some rows.

        They are copied first: Arrow's form of a slice is made of all texts and lists of the column.
        """
        if isinstance(rows, slice):
            rows = np.arange(rows.start, rows.stop)
        return self.frame.get_column(name)[rows].to_arrow(compat_level=_PLAIN)

    def slice(self, low: int, high: int, names: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the rows of a range, all columns or some."""
        if names is None:
            return self.frame.slice(low, high - low)
        return pl.DataFrame([self.frame.get_column(name).slice(low, high - low) for name in names])

    def keys(self, rows: Ints) -> pl.Series:
        """Return the encoded keys of some rows."""
        return self.frame.get_column(KEY)[rows]

    def removed(self, rows: Ints) -> Flags:
        """Return a mask of the tombstones among some rows."""
        found: Flags = self.column(REMOVED).values(rows) != 0
        return found

    def find_key(self, at: np.uint64, key: bytes) -> tuple[int, int] | None:
        """Return the first row and the end of a key's rows, if any."""
        low = int(self._hashes.searchsorted(at))
        if low == self.rows or self._hashes[low] != at:
            return None
        high, keys = int(self._hashes.searchsorted(at, "right")), self.frame.get_column(KEY)
        if keys[low] == key == keys[high - 1]:
            return low, high
        own = [row for row in range(low, high) if keys[row] == key]  # keys that share the hash
        return (own[0], own[-1] + 1) if own else None

    def is_removed(self, row: int) -> bool:
        """Return True if a row is a tombstone."""
        return self.frame.get_column(REMOVED)[row] is True

    def column(self, name: str) -> StoredColumn:
        """Return a column of fixed width."""
        found = self._columns.get(name)
        if found is None:
            array = self.frame.get_column(name).to_arrow(compat_level=_PLAIN)
            found = self._columns[name] = StoredColumn(array).sharing(list(self._columns.values()))
        return found

    def lists(self, name: str) -> StoredLists:
        """Return a list column."""
        found = self._lists.get(name)
        if found is None:
            found = self._lists[name] = StoredLists.of(self.frame.get_column(name))
        return found

    def ordinals(self, name: str, low: Ints | int, high: Ints | int) -> Ints:
        """Return a column of the order as integers."""
        found = self._ordinals.get(name)
        if found is None:  # takes most of the time of a search for one key
            found = self._ordinals[name] = self.frame[name].to_physical().to_numpy()
        return found
