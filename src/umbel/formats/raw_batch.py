"""Raw batches: the rows read from a split, before validation against a schema."""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import isfinite
from typing import Any

import orjson
import polars as pl

from umbel.types.json_values import SPECIAL
from umbel.types.raw import Raw, joined, may_join, rejects

_SPECIAL = {number: text for text, number in SPECIAL.items()}
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
"""The integers that orjson writes."""


@dataclass(frozen=True, slots=True)
class RawBatch:
    """A batch of rows of a split, in order.

    Args:
        raw: the rows, and the rejected records.
        first: the number of the first row; numbers order the rows of a source.
        where: returns the location of a row in the source, human-readable.
        text: returns the original bytes of a row.
        request: identifies the request the rows came in; None where rows do not come in requests.
        counts: additional counters, by name.
        is_damage: whether its rows represent unreadable pieces of storage.
        steps: the numbers of the rows less `first`, increasing; None for consecutive ones.
        partitions: the partition that each row is of; None where the split is of one, or the source has none.
    """

    raw: Raw
    first: int
    where: Callable[[int], str]
    text: Callable[[int], bytes]
    request: Callable[[int], int] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    is_damage: bool = False
    steps: pl.Series | None = None
    partitions: pl.Series | None = None

    def numbers(self, rows: pl.Series) -> pl.Series:
        """Return the numbers of rows, by their index."""
        return (rows if self.steps is None else self.steps.gather(rows)).cast(pl.Int64) + self.first

    def row(self, number: int) -> int:
        """Return the index of a numbered row, -1 if it is not one of these."""
        step = number - self.first
        if self.steps is None:
            return step if 0 <= step < self.raw.frame.height else -1
        row = self.steps.search_sorted(step)
        return row if row < len(self.steps) and self.steps[row] == step else -1

    def rows(self, numbers: pl.Series) -> pl.Series:
        """Return the indexes of numbered rows, all of them of this batch."""
        steps = numbers - self.first
        return steps if self.steps is None else self.steps.search_sorted(steps)


def joined_batches(batches: Iterable[RawBatch]) -> Iterator[RawBatch]:
    """Yield batches of a source, with those that follow each other and are alike joined."""
    parts, end = list[RawBatch](), 0
    for batch in batches:
        if parts and (batch.first < end or not _may_join(parts[0], batch)):
            yield _joined(parts)
            parts = []
        parts.append(batch)
        end = batch.first + batch.raw.frame.height
    if parts:
        yield _joined(parts)


def _may_join(batch: RawBatch, other: RawBatch) -> bool:
    """Return whether rows of two batches may be in one."""

    def is_plain(each: RawBatch) -> bool:
        is_alone = each.request is not None or each.partitions is not None or each.steps is not None
        return not (is_alone or each.counts or each.is_damage)

    return is_plain(batch) and is_plain(other) and may_join(batch.raw, other.raw)


def _joined(parts: Sequence[RawBatch]) -> RawBatch:
    if len(parts) == 1:
        return parts[0]
    first, found = parts[0].first, _Joined(parts)
    begins = ((part.first - first, part.raw.frame.height) for part in parts)
    steps = pl.concat(pl.int_range(begin, begin + height, eager=True) for begin, height in begins)
    return RawBatch(joined([part.raw for part in parts]), first, found.where, found.text, steps=steps)


class _Joined:
    """The positions and bytes of rows of several batches."""

    def __init__(self, parts: Sequence[RawBatch]) -> None:
        self._parts = parts
        self._starts = [0, *accumulate(part.raw.frame.height for part in parts)]

    def where(self, row: int) -> str:
        part, own = self._found(row)
        return part.where(own)

    def text(self, row: int) -> bytes:
        part, own = self._found(row)
        return part.text(own)

    def _found(self, row: int) -> tuple[RawBatch, int]:
        number = bisect_right(self._starts, row) - 1
        return self._parts[number], row - self._starts[number]


@dataclass(slots=True)
class TextRows:
    """The bytes of the rows of a batch, split lazily.

    Args:
        name: of the file.
        offset: the position of the first byte in the file.
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
        """Return the location of a row: file name and byte offset."""
        while len(self._at) <= row:
            start = self._at[-1] + len(self.text(len(self._at) - 1)) if self._at else 0
            self._at.append(self.data.find(self.text(len(self._at)), start))
        return f"{self.name}: byte {self.offset + self._at[row]}"


def as_bytes(value: Any) -> bytes:
    """Return a row of a frame as human-readable JSON.

    It reads back as the same values: bytes are in base64, and NaN and infinities are texts.

    >>> as_bytes({"score": float("nan"), "photo": b"?"})
    b'{"score":"NaN","photo":"Pw=="}'
    """
    return orjson.dumps(_readable(value), default=str, option=orjson.OPT_NON_STR_KEYS)


def _readable(value: Any) -> Any:
    """Return a value in forms that lose nothing in JSON."""
    if isinstance(value, float):
        return value if isfinite(value) else _SPECIAL.get(value, "NaN")
    if isinstance(value, int):
        return value if _LEAST <= value <= _MOST else orjson.Fragment(str(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {name: _readable(each) for name, each in value.items()}
    return [_readable(each) for each in value] if isinstance(value, list | tuple) else value


def lost(reason: str, count: int = 1) -> Raw:
    """Return `count` unreadable rows, rejected with a reason."""
    return Raw(pl.DataFrame(height=count), rejects(dict.fromkeys(range(count), reason)))
