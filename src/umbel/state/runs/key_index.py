"""The keys of a run: each once, with its hash, and where its rows are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from umbel.state.runs.addresses import Hashes, Ints, search, search_all
from umbel.state.runs.rules import HASH, KEY
from umbel.state.runs.section import BLOCK_ROWS, Section

if TYPE_CHECKING:
    from typing import Any

END = "_end"
"""The column with the end of each key's rows; left out where every key has one row."""
_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


class KeyIndex:
    """The keys of a run, in order of their hashes.

    Args:
        section: hash, key and end of rows.
        hashes: the hash of the first key of each block.
        firsts: the first row of the first key of each block; None where every key has one row.
        rows: the number of rows of the run.
    """

    def __init__(self, section: Section, hashes: Hashes, firsts: Ints | None, rows: int) -> None:
        self._section, self._index = section, hashes
        self._hashes: Hashes = section.column(HASH).to_numpy()
        self._encoded: pa.Array = section.column(KEY)
        self._ends: NDArray[Any] | None = None
        self._firsts = np.zeros(0, np.int64)
        if firsts is not None:
            self._ends, self._firsts = section.column(END).to_numpy(), np.append(firsts, rows)
        kind = self._encoded.type
        self._data = memoryview(self._encoded.buffers()[-1] or b"")
        self._width = kind.byte_width if pa.types.is_fixed_size_binary(kind) else 0
        self._offsets = np.zeros(0, np.int64)
        if not self._width:
            offsets = np.int64 if pa.types.is_large_binary(kind) else np.int32
            self._offsets = np.frombuffer(self._encoded.buffers()[1], offsets, len(self._encoded) + 1)
        self._bounds: tuple[np.uint64, np.uint64] | None = None

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Return the range of rows of each hash, as first rows and ends."""
        if self._section.is_checked:
            low, high = search_all(self._hashes, hashes)
        else:
            low, high = self._searched(hashes)
        return (low, high) if self._ends is None else (self._rows_from(low), self._rows_from(high))

    def _searched(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Return the range of keys of each hash.

        Only the blocks in which it may be are read.
        """
        count = self._section.rows
        first = np.maximum(self._index.searchsorted(hashes, "left").astype(np.int64) - 1, 0)
        last = np.maximum(self._index.searchsorted(hashes, "right").astype(np.int64) - 1, 0)
        self._section.check_blocks(np.unique(np.concatenate((first, last))))
        # The hash at the start of a block may go on from the one before: each end is searched in its own block.
        bounds = (first * BLOCK_ROWS, np.minimum((first + 1) * BLOCK_ROWS, count))
        low = search(self._hashes, bounds, hashes, right=False)
        bounds = (last * BLOCK_ROWS, np.minimum((last + 1) * BLOCK_ROWS, count))
        return low, np.maximum(low, search(self._hashes, bounds, hashes, right=True))

    def _rows_from(self, keys: Ints) -> Ints:
        """Return the first row of some keys.

        Their blocks, or those of the keys before them, are checked.
        """
        assert self._ends is not None
        found: Ints = self._ends[keys - 1].astype(np.int64)
        first = keys % BLOCK_ROWS == 0  # the one before is in another block
        if np.count_nonzero(first):
            found[first] = self._firsts[keys[first] // BLOCK_ROWS]
        return found

    def _row_from(self, key: int) -> int:
        if self._ends is None:
            return key
        return int(self._ends[key - 1] if key % BLOCK_ROWS else self._firsts[key // BLOCK_ROWS])

    def find_key(self, at: np.uint64, key: bytes) -> tuple[int, int] | None:
        """Return the first row and the end of a key's rows, if any."""
        if self._bounds is None:
            self._section.check_blocks(np.array([0, self._section.blocks - 1]))
            self._bounds = self._hashes[0], self._hashes[-1]
        if not self._bounds[0] <= at <= self._bounds[1]:
            return None
        start, hashes = 0, self._hashes
        if not self._section.is_checked:
            first, last = (max(0, int(self._index.searchsorted(at, side)) - 1) for side in _SIDES)
            self._section.check_range(first * BLOCK_ROWS, (last + 1) * BLOCK_ROWS)
            start, hashes = first * BLOCK_ROWS, hashes[first * BLOCK_ROWS : (last + 1) * BLOCK_ROWS]
        low = int(hashes.searchsorted(at))
        if low == len(hashes) or hashes[low] != at:
            return None
        high = low + 1
        if high < len(hashes) and hashes[high] == at:
            high = int(hashes.searchsorted(at, "right"))
        low, high = start + low, start + high
        if self._key(low) != key or self._key(high - 1) != key:
            own = [number for number in range(low, high) if self._key(number) == key]  # keys that share the hash
            if not own:
                return None
            low, high = own[0], own[-1] + 1
        return self._row_from(low), self._row_from(high)

    def _key(self, number: int) -> bytes:
        if self._width:
            return bytes(self._data[number * self._width : (number + 1) * self._width])
        return bytes(self._data[self._offsets[number] : self._offsets[number + 1]])

    def numbers(self, rows: Ints) -> Ints:
        """Return the number of the key of some rows."""
        if self._ends is None:
            self._section.check_rows(rows)
            return rows
        points = rows.astype(self._ends.dtype)
        if self._section.is_checked:
            return self._ends.searchsorted(points, "right").astype(np.int64)
        blocks = self._firsts[:-1].searchsorted(rows, "right").astype(np.int64) - 1
        self._section.check_blocks(np.unique(blocks))
        bounds = (blocks * BLOCK_ROWS, np.minimum((blocks + 1) * BLOCK_ROWS, self._section.rows))
        return search(self._ends, bounds, points, right=True)

    def columns_of_range(self, low: int, high: int) -> dict[str, pl.Series]:
        """Return the hash and the key of each row of a range."""
        if self._ends is None:
            self._section.check_range(low, high)
            return {HASH: pl.Series(HASH, self._hashes[low:high]), KEY: self._keys_of_range(low, high)}
        first, last = self.numbers(np.array([low, high - 1])).tolist()
        self._section.check_range(first, last + 1)
        ends = self._ends[first:last].astype(np.int64)
        counts: Ints = np.append(ends, high) - np.insert(ends, 0, low)
        places = pl.Series(np.repeat(np.arange(len(counts), dtype=np.uint32), counts))
        hashes = pl.Series(HASH, self._hashes[first : last + 1])
        return {HASH: hashes.gather(places), KEY: self._keys_of_range(first, last + 1).gather(places)}

    def _keys_of_range(self, first: int, last: int) -> pl.Series:
        return pl.Series(KEY, self._encoded.slice(first, last - first), pl.Binary)

    def hashes(self, numbers: Ints) -> Hashes:
        """Return the hashes of some keys, which were found."""
        return self._hashes[numbers]

    def keys(self, numbers: Ints) -> pl.Series:
        """Return some encoded keys, which were found."""
        return pl.Series(KEY, self._encoded.take(pa.array(numbers)), pl.Binary)
