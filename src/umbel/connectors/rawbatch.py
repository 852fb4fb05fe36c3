"""Raw batches: what opening a split yields, before any schema has judged it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import polars as pl

from umbel.types.raw import Raw, rejects


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Some rows of a split, in order.

    Args:
        raw: the rows, and what is no row at all.
        first: the number of the first row; numbers order the rows of a source.
        where: the place of a row in the source, for people.
        text: the bytes of a row, as they came.
    """

    raw: Raw
    first: int
    where: Callable[[int], str]
    text: Callable[[int], bytes]


@dataclass(slots=True)
class TextRows:
    """The bytes behind the rows of a batch, taken apart only when somebody asks.

    Args:
        name: of the file.
        offset: where the bytes start in it.
        data: the bytes.
        split: cuts them into rows.
    """

    name: str
    offset: int
    data: bytes
    split: Callable[[bytes], Sequence[bytes]]
    _rows: Sequence[bytes] | None = field(default=None, init=False)
    _at: list[int] = field(default_factory=list, init=False)

    def text(self, row: int) -> bytes:
        """Return the bytes of a row."""
        if self._rows is None:
            self._rows = self.split(self.data)
        return self._rows[row]

    def where(self, row: int) -> str:
        """Return the place of a row."""
        while len(self._at) <= row:
            start = self._at[-1] + len(self.text(len(self._at) - 1)) if self._at else 0
            self._at.append(self.data.find(self.text(len(self._at)), start))
        return f"{self.name}: byte {self.offset + self._at[row]}"


def as_bytes(value: Any) -> bytes:
    """Return a row of a frame as JSON, for people."""
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)


def lost(reason: str, count: int = 1) -> Raw:
    """Return rows that are there and cannot be read."""
    return Raw(pl.DataFrame(height=count), rejects(dict.fromkeys(range(count), reason)))
