"""Slices of history, read by the steps of a backfill in order.

A large batch is cut into parts by the hash of its rows' keys, of keyless rows by their timestamps: all changes of a row are in
one part. Sizes and cuts of a finished batch never change, so that an interrupted backfill finds the same slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import polars as pl

from umbel.state.keys import shard_of_columns
from umbel.types.schema import Schema

PART_ROWS = 100_000
"""About how many rows a part of a batch has at most; fewer where operators make many rows of one."""
SLICE_ROWS = 2_000_000
"""About how many rows a slice has at most."""
_ODD = 0x1E3779B97F4A7C15
"""A large odd number without pattern: a product with it spreads timestamps over all values."""
_SAMPLED = 16
"""One of how many timestamps is looked at to divide a batch."""
_ENOUGH = 32
"""How many of them there have to be for each part."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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

    def cut(self, rows: pl.DataFrame, schema: Schema, bounds: Sequence[int]) -> pl.DataFrame:
        """Return the parts of the slice among all rows of its batches.

        Args:
            rows: all rows.
            schema: of the rows.
            bounds: the timestamps at which the parts of keyless rows begin, from `bounds_of`.
        """
        if self.is_whole or rows.is_empty():
            return rows
        if not schema.is_keyed:
            return rows.filter(self.times(schema, bounds))
        part = shard_of_columns(rows, schema.key_names, self.parts)
        return rows.filter(part.is_between(self.begin, self.end, closed="left"))

    def times(self, schema: Schema, bounds: Sequence[int]) -> pl.Expr:
        """Return whether a keyless row is in the slice, by its timestamp.

        Files whose timestamps are all before or after the slice are skipped.

        Args:
            schema: of the rows.
            bounds: the timestamps at which the parts begin, from `bounds_of`.
        """
        at, found = pl.col(schema.timestamp), pl.lit(value=True)
        if self.begin > 0:
            found = at >= _instant(bounds[self.begin - 1])
        return found & (at < _instant(bounds[self.end - 1])) if self.end < self.parts else found


def bounds_of(timestamps: pl.Series, parts: int) -> list[int]:
    """Return the timestamps that divide the parts of a batch, in µs since the epoch.

    All parts but the first begin at one. They divide the rows evenly, as far as rows of one timestamp are in one part, and do
    not depend on the order of the rows.

    Args:
        timestamps: of all rows of the batch.
        parts: the number of parts.
    """
    instants = timestamps.dt.epoch("us")
    mixed = (instants * _ODD).reinterpret(signed=False) // (1 << 33)  # the low bits hardly depend on the timestamp
    sample = instants.filter(mixed % _SAMPLED == 0)
    if sample.n_unique() < _ENOUGH * parts:
        sample = instants  # few timestamps, of many rows each
    ordered = sample.sort()
    return ordered.gather([ordered.len() * part // parts for part in range(1, parts)]).to_list()


def _instant(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def slices(
    sizes: Mapping[int, int],
    begin: HistoryPosition,
    end: HistoryPosition,
    rows: int | None = None,
    part_rows: int = PART_ROWS,
) -> Iterator[HistorySlice]:
    """Yield the slices between two positions, in order.

    Args:
        sizes: the number of rows of each batch.
        begin: the position before them.
        end: the position after them.
        rows: about how many rows a slice has at most; never more than `SLICE_ROWS`.
        part_rows: about how many rows a part has.
    """
    most, small = min(SLICE_ROWS, rows or SLICE_ROWS), list[HistorySlice]()
    for piece in _pieces(sizes, begin, end, part_rows):
        is_small = piece.is_whole and piece.rows <= most
        if small and (not is_small or sum(each.rows for each in small) + piece.rows > most):
            yield _joined(small)
            small = []
        if is_small:
            small.append(piece)
        else:
            yield from _cut(piece, most)
    if small:
        yield _joined(small)


def _joined(batches: Sequence[HistorySlice]) -> HistorySlice:
    """Return successive whole batches as one slice."""
    return HistorySlice(batches[0].first, batches[-1].last, rows=sum(each.rows for each in batches))


def _pieces(
    sizes: Mapping[int, int], begin: HistoryPosition, end: HistoryPosition, part_rows: int
) -> Iterator[HistorySlice]:
    """Yield what is between two positions, batch by batch."""
    first = begin.part
    for batch in sorted(batch for batch in sizes if batch > begin.batch):
        parts = _parts(sizes[batch], part_rows)
        last = parts if batch <= end.batch else min(end.part, parts)
        if first < last:
            yield HistorySlice(batch, batch, first, last, parts, sizes[batch] * (last - first) // parts)
        if batch > end.batch:
            return
        first = 0


def _cut(piece: HistorySlice, most: int) -> Iterator[HistorySlice]:
    """Yield a piece of one batch in slices of about the same size."""
    number = piece.end - piece.begin
    count = min(number, max(1, -(-piece.rows // most)))
    for index in range(count):
        begin, end = (piece.begin + number * each // count for each in (index, index + 1))
        yield replace(piece, begin=begin, end=end, rows=piece.rows * (end - begin) // number)


def after(sizes: Mapping[int, int], begin: HistoryPosition, rows: int, part_rows: int = PART_ROWS) -> HistoryPosition:
    """Return the position some rows after another one, or the end of history.

    At the end of a batch if one is in the second half of the rows: a batch that two steps read is read twice.

    Args:
        sizes: the number of rows of each batch.
        begin: the other position.
        rows: about how many; at least one part is passed.
        part_rows: about how many rows a part has.
    """
    found, position, first = 0, begin, begin.part
    for batch in sorted(batch for batch in sizes if batch > begin.batch):
        parts = _parts(sizes[batch], part_rows)
        if 2 * found >= rows and found + sizes[batch] > rows:
            return position
        for part in range(first, parts):
            if found and found >= rows:
                return position
            found += max(1, sizes[batch] // parts)
            position = HistoryPosition(batch) if part + 1 == parts else HistoryPosition(position.batch, part + 1)
        first = 0
    return position


def left(sizes: Mapping[int, int], begin: HistoryPosition, part_rows: int = PART_ROWS) -> int:
    """Return about how many rows are after a position, with parts of about some rows."""
    end = HistoryPosition(max(sizes, default=begin.batch))
    return sum(piece.rows for piece in _pieces(sizes, begin, end, part_rows))


def _parts(rows: int, part_rows: int) -> int:
    return max(1, -(-rows // part_rows))
