"""Partial states of point lookups, as NumPy arrays.

They avoid the overhead of frames when there are only some points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from umbel.state.runs.points import PointRecords
from umbel.state.values import Array, Flags, Ints, Values, units

__all__ = [
    "SAFE",
    "Array",
    "Flags",
    "Fold",
    "Ints",
    "Items",
    "PointRecords",
    "PointStates",
    "Spans",
    "Values",
    "counted",
]

SAFE = 2**62


class Spans:
    """Rows grouped by point: the rows of one point are adjacent.

    Args:
        owners: the point of each row, ascending.
        size: the number of points.
    """

    __slots__ = ("_positions", "owners", "size")

    def __init__(self, owners: Ints, size: int) -> None:
        self.owners, self.size = owners, size
        self._positions: tuple[Ints, Ints] | None = None

    def summed(self, values: Array) -> Array:
        """Return the sum of the values of each point, 0 for no rows.

        The sum is bitwise equal to `values.sum()`.
        """
        return np.add.reduce(values, keepdims=True) if self.size == 1 else self._reduced(np.add, values, 0)

    def least(self, values: Array, empty: Any) -> Array:
        """Return the smallest value of each point, `empty` for no rows."""
        return self._reduced(np.minimum, values, empty)

    def largest(self, values: Array, empty: Any) -> Array:
        """Return the largest value of each point, `empty` for no rows."""
        return self._reduced(np.maximum, values, empty)

    def spread(self, each: Array) -> Array:
        """Return the value of each row's point.

        For a single point, an array to be broadcast.
        """
        return each if self.size == 1 else each[self.owners]

    @property
    def counts(self) -> list[int]:
        """The number of rows of each point."""
        return [len(self.owners)] if self.size == 1 else np.bincount(self.owners, minlength=self.size).tolist()

    @property
    def bounds(self) -> Ints:
        """The start position of each point's rows, and the end of the last ones."""
        return np.searchsorted(self.owners, np.arange(self.size + 1))

    def parts(self, values: Array) -> Iterator[Array]:
        """Yield the values of each point."""
        return (values[start:end] for start, end in pairwise(self.bounds.tolist()))

    def _reduced(self, how: np.ufunc, values: Array, empty: Any) -> Array:
        """Reduce the values of each point, starting from `empty`."""
        if self.size == 1:
            alone: Array = how.reduce(values, initial=empty, keepdims=True)
            return alone
        if self._positions is None:
            starts = np.searchsorted(self.owners, np.arange(self.size)) + np.arange(self.size)
            self._positions = starts, np.arange(1, len(self.owners) + 1) + self.owners
        starts, slots = self._positions
        padded = np.empty(len(values) + self.size, values.dtype)
        padded.fill(empty)  # half the time of `np.full`
        padded[slots] = values
        found: Array = how.reduceat(padded, starts)
        return found


class PointStates(Spans):
    """Partial states of some points, by full column name; nulls are 0.

    Args:
        owners: the point of each state, ascending.
        size: the number of points.
        records: the records with the states.
        rows: the positions of the states among the records.
    """

    __slots__ = ("records", "rows")

    def __init__(self, owners: Ints, size: int, records: PointRecords, rows: Ints) -> None:
        self.owners, self.size, self._positions = owners, size, None
        self.records, self.rows = records, rows

    def __getitem__(self, name: str) -> Array:
        """Return a column."""
        found: Array = self.records[name][self.rows]
        return found

    def present(self, name: str) -> Flags:
        """Return a mask of the values of a column that are not null."""
        return ~self.records.nulls(name)[self.rows]

    def numbers(self, name: str) -> Array:
        """Return a column of numbers; decimals in units of their last digit."""
        found = self[name]
        return units(found) if found.ndim == 2 else found

    def sums(self, name: str) -> Array:
        """Return the sum of a column for each point.

        Sums of decimals are exact, in units of their last digit.
        """
        found = self[name]
        if found.ndim == 1:
            return self.summed(found)
        numbers = units(found)
        if numbers.dtype == np.int64 and len(numbers) and _bound(numbers) * len(numbers) > SAFE:
            numbers = numbers.astype(object)
        return self.summed(numbers)

    def ends(self, name: str, *, smallest: bool) -> list[Any]:
        """Return the smallest or largest value of a column for each point.

        The column has integers or floats. The value is None for a point without values; NaN counts only if there is no other
        value.
        """
        numbers, present = self[name], self.present(name)
        spans: Spans = self
        if np.count_nonzero(present) < len(present):
            numbers, spans = numbers[present], Spans(self.owners[present], self.size)
        empty = np.nan if numbers.dtype.kind == "f" else 2**63 - 1 if smallest else -(2**63)
        found = spans._reduced(np.fmin if smallest else np.fmax, numbers, empty).tolist()
        return [value if count else None for value, count in zip(found, spans.counts, strict=True)]

    def items(self, *names: str) -> Items:
        """Return the elements of list columns with equal lengths in each row."""
        columns = [self.records.lists(name, self.rows) for name in names]
        return Items(np.repeat(self.owners, columns[0][1]), self.size, [values for values, _ in columns])


class Items(Spans):
    """Elements of the lists of states, grouped by point.

    Args:
        owners: the point of each item, ascending.
        size: the number of points.
        values: the parts of the items.
    """

    __slots__ = ("values",)

    def __init__(self, owners: Ints, size: int, values: list[Values]) -> None:
        super().__init__(owners, size)
        self.values = values


Fold = Callable[[PointStates, Ints], Sequence[Any]]
"""Returns the value of the merged states of each point, as Python values like Polars returns; the instants are in µs."""


def counted(keys: Sequence[Array], counts: Array) -> tuple[Ints, Array]:
    """Return the first row and the summed counts of each group of equal keys.

    Args:
        keys: the key arrays, the most significant first.
        counts: the count of each row.

    Returns:
        The position of the first row of each group, in key order, and the sum of the counts of its group.
    """
    order = np.lexsort(tuple(reversed(keys)))
    if not len(order):
        return order, counts
    begins = np.zeros(len(order), np.bool_)
    begins[0] = True
    for key in keys:
        ordered = key[order]
        begins[1:] |= ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(begins)
    return order[starts], np.add.reduceat(counts[order], starts)


def _bound(numbers: Array) -> int:
    return max(abs(int(numbers.max())), abs(int(numbers.min())))
