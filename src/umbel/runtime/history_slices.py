"""Slices of history, read by the steps of a backfill in order.

A large batch is cut into parts by the hash of its rows' keys, of keyless rows by that of their timestamps: all changes of a
row are in one part. Sizes and cuts of a finished batch never change, so that an interrupted backfill finds the same slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import polars as pl

from umbel.log.change_tail import BATCH
from umbel.state.keys import encode_columns, shard_of
from umbel.types.schema import Schema

PART_ROWS = 100_000
"""About how many rows a part of a batch has."""
SLICE_ROWS = 1_000_000
"""About how many rows a slice has at most."""
_ODD = 0x1E3779B97F4A7C15
"""A large odd number without pattern: a product with it spreads timestamps over all values."""


@dataclass(frozen=True, slots=True, order=True)
class HistoryPosition:
    """A position in history.

    Args:
        batch: the last batch read as a whole.
        part: the number of parts read of the batch after it.
    """

    batch: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class HistorySlice:
    """Some batches of history, or some parts of one batch.

    Args:
        first: the first batch.
        last: the last batch.
        begin: the first part.
        end: the part after the last one.
        parts: the number of parts of the batch; 1 for whole batches.
        rows: about how many rows are in it.
    """

    first: int
    last: int
    begin: int = 0
    end: int = 1
    parts: int = 1
    rows: int = 0

    @property
    def is_whole(self) -> bool:
        """True if it has all rows of its batches."""
        return self.end - self.begin == self.parts

    def read(self, schema: Schema, history: Callable[[pl.Expr, int], pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of the slice.

        Args:
            schema: of the rows.
            history: returns the rows that meet a condition, of the batches up to one.
        """
        condition = pl.col(BATCH) >= self.first
        if self.is_whole or schema.is_keyed:
            return self.cut(history(condition, self.last), schema)
        return history(condition & self._is_mine(schema), self.last)

    def cut(self, rows: pl.DataFrame, schema: Schema) -> pl.DataFrame:
        """Return the parts of the slice among all rows of its batches."""
        if self.is_whole or rows.is_empty():
            return rows
        if not schema.is_keyed:
            return rows.filter(self._is_mine(schema))
        part = shard_of(encode_columns(rows, schema.key_names), self.parts)
        return rows.filter(part.is_between(self.begin, self.end, closed="left"))

    def _is_mine(self, schema: Schema) -> pl.Expr:
        """Return whether a keyless row is in the slice, by its timestamp."""
        mixed = (pl.col(schema.timestamp).dt.epoch("us") * _ODD).reinterpret(signed=False)
        part = mixed // (1 << 33) % self.parts  # the low bits hardly depend on the timestamp
        return part.is_between(self.begin, self.end, closed="left")


def slices(sizes: Mapping[int, int], begin: HistoryPosition, end: HistoryPosition) -> Iterator[HistorySlice]:
    """Yield the slices between two positions, in order.

    Args:
        sizes: the number of rows of each batch.
        begin: the position before them.
        end: the position after them.
    """
    small: HistorySlice | None = None
    for piece in _pieces(sizes, begin, end):
        if small is not None and (not piece.is_whole or small.rows >= SLICE_ROWS):
            yield small
            small = None
        if piece.is_whole and piece.rows < SLICE_ROWS:
            whole = replace(piece, begin=0, end=1, parts=1)
            small = whole if small is None else replace(small, last=piece.last, rows=small.rows + piece.rows)
        else:
            if small is not None:
                yield small
                small = None
            yield from _cut(piece)
    if small is not None:
        yield small


def _pieces(sizes: Mapping[int, int], begin: HistoryPosition, end: HistoryPosition) -> Iterator[HistorySlice]:
    """Yield what is between two positions, batch by batch."""
    first = begin.part
    for batch in sorted(batch for batch in sizes if batch > begin.batch):
        parts = _parts(sizes[batch])
        last = parts if batch <= end.batch else min(end.part, parts)
        if first < last:
            yield HistorySlice(batch, batch, first, last, parts, sizes[batch] * (last - first) // parts)
        if batch > end.batch:
            return
        first = 0


def _cut(piece: HistorySlice) -> Iterator[HistorySlice]:
    """Yield a piece of one batch in slices of the largest size."""
    step = max(1, SLICE_ROWS // PART_ROWS)
    for begin in range(piece.begin, piece.end, step):
        end = min(begin + step, piece.end)
        yield replace(piece, begin=begin, end=end, rows=piece.rows * (end - begin) // (piece.end - piece.begin))


def after(sizes: Mapping[int, int], begin: HistoryPosition, rows: int) -> HistoryPosition:
    """Return the position some rows after another one, or the end of history.

    Args:
        sizes: the number of rows of each batch.
        begin: the other position.
        rows: how many at least; at least one part is passed.
    """
    found, position, first = 0, begin, begin.part
    for batch in sorted(batch for batch in sizes if batch > begin.batch):
        parts = _parts(sizes[batch])
        for part in range(first, parts):
            if found and found >= rows:
                return position
            found += max(1, sizes[batch] // parts)
            position = HistoryPosition(batch) if part + 1 == parts else HistoryPosition(position.batch, part + 1)
        first = 0
    return position


def left(sizes: Mapping[int, int], begin: HistoryPosition) -> int:
    """Return about how many rows are after a position."""
    return sum(piece.rows for piece in _pieces(sizes, begin, HistoryPosition(max(sizes, default=begin.batch))))


def _parts(rows: int) -> int:
    return max(1, -(-rows // PART_ROWS))
