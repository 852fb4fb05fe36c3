"""The lag of a source: rows, bytes and seconds beyond a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T", int, float)


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The lag of a source beyond a position; None for unknown.

    Args:
        rows: the number of rows or messages.
        bytes: their size, or that of the server's log.
        seconds: how long the oldest of them has waited.
    """

    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None

    @property
    def is_known(self) -> bool:
        """True if the source can tell anything."""
        return (self.rows, self.bytes, self.seconds) != (None, None, None)

    @property
    def is_behind(self) -> bool:
        """True if there is anything beyond the position."""
        return bool(self.rows or self.bytes or self.seconds)

    def __add__(self, other: SourceLag) -> SourceLag:
        """Return the lag of two steps one after the other."""
        return SourceLag(
            _sum([self.rows, other.rows]), _sum([self.bytes, other.bytes]), _sum([self.seconds, other.seconds])
        )

    def __str__(self) -> str:
        if not self.is_known:
            return "unknown"
        parts = [
            *([f"{self.rows:,} rows"] if self.rows else []),
            *([f"{self.bytes:,} bytes"] if self.bytes else []),
            *([f"{self.seconds:,.1f} s"] if self.seconds else []),
        ]
        return f"{', '.join(parts)} behind" if parts else "up to date"


def _sum(values: Sequence[T | None]) -> T | None:
    known = [each for each in values if each is not None]
    return sum(known[1:], known[0]) if known else None
