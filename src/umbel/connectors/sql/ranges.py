"""Ranges of a table, read by several connections in its first read.

Ranges are in order and of about equal size, and each row is in one of them, whatever their bounds are.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from umbel.errors import InvalidValue

VARIABLE = "UMBEL_FIRST_READ_CONNECTIONS"
CONNECTIONS, MOST_CONNECTIONS = 4, 64
"""How many connections read the ranges of one table by default, and at most."""
MOST_RANGES = 1000


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a table.

    Args:
        low: rows are at or above it; None for any.
        high: rows are below it.
        is_last: whether rows may also be at `high`.
    """

    low: str | None
    high: str
    is_last: bool = False


def ranges_between(bounds: Sequence[str], high: str) -> list[Range]:
    """Return the ranges before, between and after ordered bounds."""
    lows: list[str | None] = [None, *bounds]
    highs = [*bounds, high]
    return [Range(low, end, at == len(bounds)) for at, (low, end) in enumerate(zip(lows, highs, strict=True))]


def connections() -> int:
    """Return how many connections read the ranges of one table.

    Raises:
        InvalidValue: the environment has no such number.
    """
    text = os.environ.get(VARIABLE) or str(CONNECTIONS)
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_CONNECTIONS):
        raise InvalidValue(f"{VARIABLE} must be a number from 1 to {MOST_CONNECTIONS}, found {text!r:.40}")
    return int(text)


class RangeReader(Protocol):
    """Reads ranges of a table; it is pickled for the processes that do."""

    @abstractmethod
    def connected(self) -> AbstractContextManager[Any]:
        """Connect for a block, in which ranges are read one after the other."""

    @abstractmethod
    def parts(self, connection: Any, each: Range) -> Iterator[tuple[pl.DataFrame, dict[str, Any]]]:
        """Yield the rows of a range as they are staged, with facts about them."""
