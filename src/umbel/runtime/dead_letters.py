"""Bounds on dead letters: all rejected rows are counted, a bounded number is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from umbel.catalog.catalog import DeadLetter

BYTES = 64 << 20
"""Bytes of rejected rows that one batch stores at the most."""
DROPPED = "dead_dropped"
"""The count of dead letters that were not stored."""


class DeadLetters:
    """Dead letters of a batch or a part of it, bounded by number and size.

    The letters with the smallest positions are retained, in whatever order they are added: a batch that is run again stores the
    same ones.

    Args:
        most: the largest number of letters.
    """

    def __init__(self, most: int) -> None:
        self._most, self._letters, self._size = most, list[DeadLetter](), 0
        self._dropped = Counter[str]()

    def add(self, letters: Iterable[DeadLetter]) -> None:
        """Add dead letters."""
        for each in letters:
            self._letters.append(each)
            self._size += len(each.raw)
            if len(self._letters) > 2 * self._most or self._size > 2 * BYTES:
                self._trim()

    def retained(self) -> tuple[list[DeadLetter], Counter[str]]:
        """Return the letters to store, and the number dropped by dataset."""
        self._trim()
        return self._letters, self._dropped

    def _trim(self) -> None:
        if len(self._letters) <= self._most and self._size <= BYTES:
            return
        self._letters.sort(key=lambda each: (each.dataset, each.source, each.position, each.field))
        size = taken = 0
        for each in self._letters[: self._most]:
            size += len(each.raw)
            if size > BYTES:
                break
            taken += 1
        self._dropped.update(each.dataset for each in self._letters[taken:])
        del self._letters[taken:]
        self._size = sum(len(each.raw) for each in self._letters)
