"""A map with sorted keys for values that live in memory."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

V = TypeVar("V")

_FEW = 64


class SortedMap(Generic[V]):
    """Bytes to values: reads and writes cost what they cost in a dict; the order is made when it is asked for."""

    __slots__ = ("_added", "_gone", "_order", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, V] = {}
        self._order: list[bytes] = []
        self._added: list[bytes] = []
        self._gone: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.values)

    def set(self, key: bytes, value: V) -> None:
        """Set a key's value."""
        if key not in self.values:
            if key in self._gone:
                self._gone.discard(key)
            else:
                self._added.append(key)
        self.values[key] = value

    def remove(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        if key in self.values:
            del self.values[key]
            self._gone.add(key)

    def between(self, low: bytes, high: bytes, reverse: bool) -> Iterator[bytes]:
        """Yield the keys with low <= key < high, in order or from the high end down."""
        order = self._sorted()
        start, end = bisect_left(order, low), bisect_left(order, high)
        positions = range(end - 1, start - 1, -1) if reverse else range(start, end)
        return (key for key in map(order.__getitem__, positions) if key in self.values)

    def _sorted(self) -> list[bytes]:
        if self._added:
            self._merge()
        if 2 * len(self._gone) > len(self._order):
            self._order = [key for key in self._order if key in self.values]
            self._gone.clear()
        return self._order

    def _merge(self) -> None:
        if len(self._added) < _FEW:
            for key in self._added:
                insort(self._order, key)
        else:
            self._order = sorted(self._order + self._added)
        self._added = []
