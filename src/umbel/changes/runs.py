"""Runs of equal values in sorted arrays, and ranges of positions.

They keep kernels free of Python loops over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from umbel.state.runs.sorting import gathered, order_of_numbers, packed_numbers, sorted_numbers

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def changes(*columns: NDArray[Any]) -> Flags:
    """Return a mask of rows that differ from the previous row in any column.

    The first row always does.
    """
    differs = np.zeros(len(columns[0]), np.bool_)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return differs


MANY = 5_000
"""Fewer rows are sorted faster by their texts than by the ranks of these."""


def ordered(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return rows sorted by some columns.

    Columns of integers, and of texts that repeat, are packed into one number where possible, which sorts much faster. The last
    ones are left out if rows are in their order already: the sort is stable.
    """
    packed = _packed(frame.select(_unordered(frame, columns)))
    if packed is None:
        return frame.sort(columns)
    return frame if _is_ascending(packed) else gathered(frame, order_of_numbers(packed))


def _unordered(frame: pl.DataFrame, columns: Sequence[str]) -> Sequence[str]:
    """Return the first columns, without the last ones if those are of integers in order."""
    for count in range(len(columns), 1, -1):
        last = frame[columns[count - 1]]
        if not last.dtype.is_integer() or last.null_count() or not _is_ascending(last.to_numpy()):
            return columns[:count]
    return columns[:1]


def _is_ascending(numbers: NDArray[Any]) -> bool:
    return bool((numbers[1:] >= numbers[:-1]).all())


def _packed(frame: pl.DataFrame) -> Ints | None:
    """Return one integer for each row with the same order as the columns.

    None where 63 bits are not enough, for columns of other types or of texts most of which differ, and for nulls.
    """
    columns = [_ranked(column) for column in frame.iter_columns()]
    if any(not each.dtype.is_integer() or each.dtype == pl.UInt64 or each.null_count() for each in columns):
        return None
    return packed_numbers([each.to_numpy().astype(np.int64, copy=False) for each in columns])


def _ranked(column: pl.Series) -> pl.Series:
    """Return the rank of each text if texts repeat often; any other column unchanged."""
    if column.dtype != pl.String or len(column) < MANY:
        return column
    texts = column.drop_nulls().unique()
    if len(texts) > len(column) // 8:
        return column
    return column.cast(pl.Enum(texts.sort())).to_physical()


def key_changes(ordered: pl.DataFrame, columns: Sequence[str]) -> Flags:
    """Return a mask of the first row of each key among rows ordered by key."""
    differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in columns)
    begins = ordered.select(differs).to_series().to_numpy().copy()
    begins[:1] = True
    return begins


def numbers(begins: Flags) -> Ints:
    """Return for each row the number of its run."""
    return np.cumsum(begins, dtype=np.int64) - 1


def lengths(begins: Flags) -> Ints:
    """Return the length of each run."""
    return np.diff(np.flatnonzero(begins), append=len(begins)).astype(np.int64)


def in_company(begins: Flags) -> Ints:
    """Return the indices of the rows that are not alone in their run."""
    is_alone = begins & np.append(begins[1:], True)[: len(begins)]
    return np.flatnonzero(~is_alone)


def any_in_run(begins: Flags, flags: Flags) -> Flags:
    """Return a mask of the rows whose run has any row with the flag."""
    found = np.logical_or.reduceat(flags, np.flatnonzero(begins)) if len(begins) else flags
    return np.repeat(found, lengths(begins))


def running_maximum(slots: NDArray[Any], values: Ints) -> Ints:
    """Return the running maximum of values within each slot.

    The slots are in order.
    """
    if not len(slots):
        return values
    low, high = int(values.min()), int(values.max())
    if (int(slots[-1]) + 1) * (high - low + 1) >= 1 << 63:
        distinct, ranks = np.unique(values, return_inverse=True)
        return distinct[running_maximum(slots, ranks.astype(np.int64))]
    before = slots.astype(np.int64) * (high - low + 1)  # so that the maximum begins anew with each slot
    found: Ints = np.maximum.accumulate(values - low + before) - before + low
    return found


def expand(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return the range number and the position of each member of ranges [low, high)."""
    counts = np.maximum(high - low, 0)
    owner = np.repeat(np.arange(len(low)), counts)
    before = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) - np.repeat(before - low, counts)


def sorted_pairs(slots: Ints, instants: Ints) -> tuple[Ints, Ints]:
    """Return pairs (slot, instant) sorted by both.

    They are packed into one number where possible, which sorts much faster.
    """
    if not len(slots):
        return slots, instants
    counts = np.bincount(slots)
    ordered = np.repeat(np.arange(len(counts)), counts)
    low = int(instants.min())
    width = int(instants.max()) - low + 1
    if len(counts) * width >= 1 << 63:
        return ordered, instants[np.lexsort((instants, slots))]
    packed = sorted_numbers(slots * width + (instants - low))
    return ordered, packed - ordered * width + low


class Sorted:
    """A sorted index of pairs (slot, instant) for binary search.

    Args:
        slots: small numbers from 0, in order.
        instants: in order within each slot.
    """

    def __init__(self, slots: Ints, instants: Ints) -> None:
        self._instants = instants
        self._bounds = np.concatenate(([0], np.cumsum(np.bincount(slots))))
        self._steps = 1 << np.arange(int(np.diff(self._bounds).max(initial=0)).bit_length())[::-1]

    def first_at_or_after(self, slots: Ints, instants: Ints) -> Ints:
        """Return the position of each slot's first pair at or after an instant."""
        return self._find(slots, instants, np.less)

    def first_after(self, slots: Ints, instants: Ints) -> Ints:
        """Return the position of each slot's first pair after an instant."""
        return self._find(slots, instants, np.less_equal)

    def _find(self, slots: Ints, instants: Ints, precedes: np.ufunc) -> Ints:
        """Return positions by a binary search of all slots at once.

        Each step is a power of two, the largest first.
        """
        last = len(self._bounds) - 1
        found = self._bounds[np.minimum(slots, last)]
        end = self._bounds[np.minimum(slots + 1, last)]
        for step in self._steps:
            ahead = found + step
            inside = ahead <= end
            inside &= precedes(self._instants.take(ahead - 1, mode="clip"), instants)
            found = np.where(inside, ahead, found)
        return found
