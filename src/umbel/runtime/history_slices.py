"""Slices of history, read by the steps of a backfill in order.

A large batch is cut into parts by the hash of its rows' keys, of keyless rows by their timestamps: all changes of a row are in
one part. Sizes and cuts of a finished batch never change, so that an interrupted backfill finds the same slices. Where a step
takes too much, parts are divided: the bounds that there were remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import polars as pl

from umbel.state.keys import shard_of_columns
from umbel.types.schema import Schema

PART_ROWS = 100_000
"""About how many rows a part of a batch has at most; fewer where operators make many rows of one."""
SLICE_ROWS = 2_000_000
"""About how many rows a slice has at most."""
DIVISOR = 8
"""Into how many smaller ones a part is divided at once."""
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
        divisor: into how many each part was divided; `parts` counts these.
    """

    first: int
    last: int
    begin: int = 0
    end: int = 1
    parts: int = 1
    rows: int = 0
    divisor: int = 1

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
        shard, undivided = shard_of_columns(rows, schema.key_names, self.parts), self.parts // self.divisor
        part = shard % undivided * self.divisor + shard // undivided
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


def bounds_of(timestamps: pl.Series, parts: int, divisor: int = 1) -> list[int]:
    """Return the timestamps that divide the parts of a batch, in µs since the epoch.

    All parts but the first begin at one. They divide the rows evenly, as far as rows of one timestamp are in one part, and do
    not depend on the order of the rows.

    Args:
        timestamps: of all rows of the batch.
        parts: the number of parts.
        divisor: into how many each part was divided; their bounds are among those of the smaller ones.
    """
    instants, undivided = timestamps.dt.epoch("us"), parts // divisor
    mixed = (instants * _ODD).reinterpret(signed=False) // (1 << 33)  # the low bits hardly depend on the timestamp
    sample = instants.filter(mixed % _SAMPLED == 0)
    if sample.n_unique() < _ENOUGH * undivided:
        sample = instants  # few timestamps, of many rows each
    ordered = sample.sort()
    bounds = ordered.gather([ordered.len() * part // undivided for part in range(1, undivided)])
    return bounds.to_list() if divisor == 1 else _divided(instants.sort(), bounds, divisor)


def _divided(ordered: pl.Series, bounds: pl.Series, divisor: int) -> list[int]:
    """Return the bounds of parts that are divided evenly, without that of the first part.

    Args:
        ordered: all timestamps, ascending.
        bounds: those of the parts, each the timestamp of a row.
        divisor: into how many each part is divided.
    """
    edges = [0, *ordered.search_sorted(bounds, side="left").to_list(), ordered.len()]
    found = [begin + (end - begin) * each // divisor for begin, end in pairwise(edges) for each in range(divisor)]
    return ordered.gather(found[1:]).to_list()


def _instant(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


@dataclass(frozen=True, slots=True)
class HistorySizes:
    """The rows of batches of history, and their parts.

    Args:
        rows: the number of rows of each batch.
        part_rows: about how many rows a part has.
        divisor: into how many parts are divided at most, a power of `DIVISOR`; none has less than a row.
    """

    rows: Mapping[int, int]
    part_rows: int = PART_ROWS
    divisor: int = 1

    def after(self, begin: HistoryPosition, rows: int) -> HistoryPosition:
        """Return the position some rows after another one, or the end of history.

        At the end of a batch if one is in the second half of the rows: a batch that two steps read is read twice.

        Args:
            begin: the other position.
            rows: about how many; at least one part is passed.
        """
        found, position, first = 0, begin, begin.part
        for batch in self._behind(begin):
            parts = self.parts(batch)
            if 2 * found >= rows and found + self.rows[batch] > rows:
                return position
            for part in range(first, parts):
                if found and found >= rows:
                    return position
                found += max(1, self.rows[batch] // parts)
                is_last = part + 1 == parts
                position = HistoryPosition(batch) if is_last else HistoryPosition(position.batch, part + 1)
            first = 0
        return position

    def left(self, begin: HistoryPosition) -> int:
        """Return about how many rows are after a position."""
        end = HistoryPosition(max(self.rows, default=begin.batch))
        return sum(piece.rows for piece in self._pieces(begin, end))

    def slices(self, begin: HistoryPosition, end: HistoryPosition, rows: int | None = None) -> Iterator[HistorySlice]:
        """Yield the slices between two positions, in order.

        Args:
            begin: the position before them.
            end: the position after them.
            rows: about how many rows a slice has at most; never more than `SLICE_ROWS`.
        """
        most, small = min(SLICE_ROWS, rows or SLICE_ROWS), list[HistorySlice]()
        for piece in self._pieces(begin, end):
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

    def parts(self, batch: int) -> int:
        """Return the number of parts of a batch."""
        return self._undivided(batch) * self._divisor(batch)

    def divided(self, rows: int) -> HistorySizes:
        """Return the sizes with parts of about some rows at most."""
        divisor = self.divisor
        while self.part_rows // divisor > rows:
            divisor *= DIVISOR
        return replace(self, divisor=divisor)

    def at(self, position: HistoryPosition, before: HistorySizes) -> HistoryPosition:
        """Return a position of sizes whose parts were divided since."""
        batch = next(self._behind(position), None)
        if batch is None or not position.part:
            return position
        return replace(position, part=position.part * self.parts(batch) // before.parts(batch))

    def _undivided(self, batch: int) -> int:
        return max(1, -(-self.rows[batch] // self.part_rows))

    def _divisor(self, batch: int) -> int:
        """Return into how many each part of a batch is divided."""
        found, rows = 1, self.rows[batch] // self._undivided(batch)
        while found < self.divisor and found * DIVISOR <= rows:
            found *= DIVISOR
        return found

    def _behind(self, position: HistoryPosition) -> Iterator[int]:
        """Yield the batches that were not read as a whole at a position, in order."""
        yield from sorted(batch for batch in self.rows if batch > position.batch)

    def _pieces(self, begin: HistoryPosition, end: HistoryPosition) -> Iterator[HistorySlice]:
        """Yield what is between two positions, batch by batch."""
        first = begin.part
        for batch in self._behind(begin):
            parts, size = self.parts(batch), self.rows[batch]
            last = parts if batch <= end.batch else min(end.part, parts)
            if first < last:
                rows = size * last // parts - size * first // parts
                yield HistorySlice(batch, batch, first, last, parts, rows, self._divisor(batch))
            if batch > end.batch:
                return
            first = 0


def _joined(batches: Sequence[HistorySlice]) -> HistorySlice:
    """Return successive whole batches as one slice."""
    return HistorySlice(batches[0].first, batches[-1].last, rows=sum(each.rows for each in batches))


def _cut(piece: HistorySlice, most: int) -> Iterator[HistorySlice]:
    """Yield a piece of one batch in slices of about the same size."""
    number = piece.end - piece.begin
    count = min(number, max(1, -(-piece.rows // most)))
    for index in range(count):
        begin, end = (piece.begin + number * each // count for each in (index, index + 1))
        yield replace(piece, begin=begin, end=end, rows=piece.rows * (end - begin) // number)
