"""States at hand: those of a few questions, as arrays, for an answer that is not worth a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from umbel.state.records import Array, Flags, Ints, Records, Values, units

__all__ = ["SAFE", "Array", "Flags", "Fold", "Held", "Ints", "Items", "Records", "Spans", "Values", "counted"]

SAFE = 2**62


class Spans:
    """Rows that belong to questions, those of one question side by side.

    Args:
        owners: the question of each row, ascending.
        size: how many questions there are.
    """

    __slots__ = ("_places", "owners", "size")

    def __init__(self, owners: Ints, size: int) -> None:
        self.owners, self.size = owners, size
        self._places: tuple[Ints, Ints] | None = None

    def summed(self, values: Array) -> Array:
        """Return the sum of the values of each question, 0 where there are none: to the bit what `values.sum()` is."""
        return np.add.reduce(values, keepdims=True) if self.size == 1 else self._reduced(np.add, values, 0)

    def least(self, values: Array, empty: Any) -> Array:
        """Return the smallest value of each question, `empty` where there are none."""
        return self._reduced(np.minimum, values, empty)

    def largest(self, values: Array, empty: Any) -> Array:
        """Return the largest value of each question, `empty` where there are none."""
        return self._reduced(np.maximum, values, empty)

    def spread(self, each: Array) -> Array:
        """Return a value of each question at its rows; where there is one question, to be broadcast."""
        return each if self.size == 1 else each[self.owners]

    @property
    def counts(self) -> list[int]:
        """How many rows each question has."""
        return [len(self.owners)] if self.size == 1 else np.bincount(self.owners, minlength=self.size).tolist()

    @property
    def bounds(self) -> Ints:
        """Where the rows of each question begin, and where the last ones end."""
        return np.searchsorted(self.owners, np.arange(self.size + 1))

    def parts(self, values: Array) -> Iterator[Array]:
        """Yield the values of each question."""
        return (values[start:end] for start, end in pairwise(self.bounds.tolist()))

    def _reduced(self, how: np.ufunc, values: Array, empty: Any) -> Array:
        """Reduce with `empty` before the values of each question."""
        if self.size == 1:
            alone: Array = how.reduce(values, initial=empty, keepdims=True)
            return alone
        if self._places is None:
            starts = np.searchsorted(self.owners, np.arange(self.size)) + np.arange(self.size)
            self._places = starts, np.arange(1, len(self.owners) + 1) + self.owners
        starts, slots = self._places
        padded = np.full(len(values) + self.size, empty, values.dtype)
        padded[slots] = values
        found: Array = how.reduceat(padded, starts)
        return found


class Held(Spans):
    """Partial states of some questions, by the full names of their columns; what is null is 0.

    Args:
        owners: the question each state counts for, ascending.
        size: how many questions there are.
        records: where the states are.
        rows: which of the records.
    """

    __slots__ = ("records", "rows")

    def __init__(self, owners: Ints, size: int, records: Records, rows: Ints) -> None:
        self.owners, self.size, self._places = owners, size, None
        self.records, self.rows = records, rows

    def __getitem__(self, name: str) -> Array:
        """Return a column."""
        found: Array = self.records[name][self.rows]
        return found

    def present(self, name: str) -> Flags:
        """Return which values of a column are not null."""
        return ~self.records.nulls(name)[self.rows]

    def numbers(self, name: str) -> Array:
        """Return a column of numbers; of decimals, in units of their last digit."""
        found = self[name]
        return units(found) if found.ndim == 2 else found

    def sums(self, name: str) -> Array:
        """Return the sum of a column for each question; of decimals the exact one, in units of their last digit."""
        found = self[name]
        if found.ndim == 1:
            return self.summed(found)
        numbers = units(found)
        if numbers.dtype == np.int64 and len(numbers) and _bound(numbers) * len(numbers) > SAFE:
            numbers = numbers.astype(object)
        return self.summed(numbers)

    def ends(self, name: str, *, smallest: bool) -> list[Any]:
        """Return the smallest or the largest of a column of whole numbers or floats for each question, None where there is none.

        NaN counts only where there is nothing else.
        """
        numbers, present = self[name], self.present(name)
        spans: Spans = self
        if np.count_nonzero(present) < len(present):
            numbers, spans = numbers[present], Spans(self.owners[present], self.size)
        empty = np.nan if numbers.dtype.kind == "f" else 2**63 - 1 if smallest else -(2**63)
        found = spans._reduced(np.fmin if smallest else np.fmax, numbers, empty).tolist()
        return [value if count else None for value, count in zip(found, spans.counts, strict=True)]

    def items(self, *names: str) -> Items:
        """Return the elements of list columns, all as long as each other in a row."""
        columns = [self.records.lists(name, self.rows) for name in names]
        return Items(np.repeat(self.owners, columns[0][1]), self.size, [values for values, _ in columns])


class Items(Spans):
    """What the lists of states hold, those of one question side by side.

    Args:
        owners: the question of each item, ascending.
        size: how many questions there are.
        values: the parts of the items.
    """

    __slots__ = ("values",)

    def __init__(self, owners: Ints, size: int, values: list[Values]) -> None:
        super().__init__(owners, size)
        self.values = values


Fold = Callable[[Held, Ints], Sequence[Any]]
"""Returns what the states of each question are worth together, as Polars hands values out; asked for at instants in µs."""


def counted(keys: Sequence[Array], counts: Array) -> tuple[Ints, Array]:
    """Return of rows, sorted by their keys, the first of each kind and the sum of the counts of all of its kind.

    Args:
        keys: what tells kinds apart, the first key first.
        counts: of the rows.
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
