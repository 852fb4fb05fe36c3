"""The protocol of runs and blocks in memory that point lookups search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from umbel.state.runs.addresses import Hashes
from umbel.state.values import Flags, Ints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbel.state.runs.packing import Ordinals
    from umbel.state.runs.stored_columns import StoredColumn
    from umbel.state.runs.stored_lists import StoredLists


class PointSource(Protocol):
    """A run or a block in memory, searched for single keys."""

    def find_key(self, at: np.uint64, key: bytes) -> tuple[int, int] | None:
        """Return the first row and the end of a key's rows, if any.

        Args:
            at: the hash of the key.
            key: the encoded key.
        """
        ...

    def is_removed(self, row: int) -> bool:
        """Return True if a row is a tombstone."""
        ...

    def ordinals(self, name: str, low: int, high: int) -> Ints | Ordinals:
        """Return a whole column of the order as integers.

        Only the rows from `low` to `high` may be read.
        """
        ...

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Return the range of rows of each hash, as first rows and ends."""
        ...

    def keys(self, rows: Ints) -> pl.Series:
        """Return the encoded keys of some rows."""
        ...

    def removed(self, rows: Ints) -> Flags:
        """Return a mask of the tombstones among some rows."""
        ...

    def taken(self, name: str, rows: Ints | slice) -> pa.Array:
        """Return a column at some rows, which were found; offsets may be short."""
        ...

    def column(self, name: str) -> StoredColumn:
        """Return a column of fixed width."""
        ...

    def lists(self, name: str) -> StoredLists:
        """Return a list column."""
        ...

    def take(self, rows: Ints) -> pl.DataFrame:
        """Return some rows, in the order given."""
        ...

    def slice(self, low: int, high: int, names: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the rows of a range, all columns or some."""
        ...
