"""Reading of entries by ranges of their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from umbel.state.runs.addresses import Ints, beginnings, expanded, hash_keys, merged_sequences, search, with_sources
from umbel.state.runs.reading import no_rows
from umbel.state.runs.rules import HASH, KEY, KEY_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbel.state.runs.addresses import Flags, Hashes
    from umbel.state.runs.packing import Ordinals
    from umbel.state.runs.reading import SortedRows
    from umbel.state.runs.rules import TableSchema

LOWEST, HIGHEST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class _KeyRows:
    """The rows of some keys in one source.

    Args:
        source: the run or block.
        order: the values of the first column of the order, as integers.
        start: the first row of each key.
        end: the end of each key's rows.
    """

    source: SortedRows
    order: Ints | Ordinals
    start: Ints
    end: Ints

    def of(self, owners: Ints) -> _KeyRows:
        """Return the rows of each of some ranges of the keys."""
        return _KeyRows(self.source, self.order, self.start[owners], self.end[owners])

    def position(self, bounds: Ints, where: Ints | None = None) -> Ints:
        """Return for each key the first row at or after its bound.

        Args:
            bounds: of each key.
            where: the keys searched, all when None.
        """
        start, end = (self.start, self.end) if where is None else (self.start[where], self.end[where])
        return search(self.order, (start, end), bounds if where is None else bounds[where], right=False)

    def last_before(self, bounds: Ints, where: Ints) -> tuple[Ints, Flags]:
        """Return the last row before each key's bound, and where there is one."""
        rows = self.position(bounds, where) - 1
        return rows, rows >= self.start[where]

    def first_from(self, bounds: Ints, where: Ints) -> tuple[Ints, Flags]:
        """Return the first row from each key's bound on, and where there is one."""
        rows = self.position(bounds, where)
        return rows, rows < self.end[where]


@dataclass(frozen=True, slots=True)
class TimeRanges:
    """The entries of some keys in ranges of the first column of the order.

    Args:
        schema: of a table with an order.
        found: the rows of the keys in each source, oldest first.
        low: the lowest value of each range.
        high: the value from which on it ends.
    """

    schema: TableSchema
    found: Sequence[_KeyRows]
    low: Ints
    high: Ints

    @classmethod
    def of(
        cls, sources: Sequence[SortedRows], schema: TableSchema, keys: pl.Series, low: pl.Series, high: pl.Series
    ) -> TimeRanges:
        """Return the ranges of some keys.

        Args:
            sources: the runs and blocks of a table, oldest first.
            schema: of the table.
            keys: encoded keys, one for each range.
            low: the lowest value of the first column of the order; null is unbounded.
            high: the value from which on a range ends; null is unbounded. One below `low` makes an empty range at `low`.
        """
        hashes, owners = hash_keys(keys), np.arange(len(keys))
        return cls.of_numbered(sources, schema, (keys, hashes), owners, (_bounds(low, LOWEST), _bounds(high, HIGHEST)))

    @classmethod
    def of_numbered(
        cls,
        sources: Sequence[SortedRows],
        schema: TableSchema,
        keys: tuple[pl.Series, Hashes],
        owners: Ints,
        bounds: tuple[Ints, Ints],
    ) -> TimeRanges:
        """Return ranges of keys whose hashes are known.

        Args:
            sources: the runs and blocks of a table, oldest first.
            schema: of the table.
            keys: encoded keys, and their hashes.
            owners: the index of each range's key.
            bounds: the lowest value of each range, and the one from which on it ends.
        """
        name = next(iter(schema.order))
        found = [_rows_of(source, name, *keys) for source in sources] if len(owners) else []
        known = [each.of(owners) for each in found if each is not None]
        lowest, highest = bounds
        return cls(schema, known, lowest, np.maximum(lowest, highest))

    def with_last_before(self) -> TimeRanges:
        """Return the ranges extended by the last existing entry before each."""
        low, bounds = self.low.copy(), self.low.copy()
        where = np.arange(len(low))
        while len(where):
            latest = np.full(len(where), LOWEST)
            exists = np.zeros(len(where), np.bool_)
            for each in self.found:
                rows, known = each.last_before(bounds, where)
                self._seen(each, rows, known, latest, exists, is_later=True)
            low[where[exists]] = latest[exists]
            bounds[where] = latest
            where = where[~exists & (latest > LOWEST)]
        return TimeRanges(self.schema, self.found, low, self.high)

    def with_first_after(self) -> TimeRanges:
        """Return the ranges extended by the first existing entry after each."""
        high, bounds = self.high.copy(), self.high.copy()
        where = np.arange(len(high))
        while len(where):
            earliest = np.full(len(where), HIGHEST)
            exists = np.zeros(len(where), np.bool_)
            for each in self.found:
                rows, known = each.first_from(bounds, where)
                self._seen(each, rows, known, earliest, exists, is_later=False)
            following = np.where(earliest < HIGHEST, earliest + 1, HIGHEST)
            high[where[exists]] = following[exists]
            bounds[where] = following
            where = where[~exists & (earliest < HIGHEST)]
        return TimeRanges(self.schema, self.found, self.low, high)

    def apart(self, keys: pl.Series) -> TimeRanges:
        """Return the ranges without what an earlier one of the same key has.

        Args:
            keys: of the ranges.
        """
        if self._is_apart(keys):
            return self
        ordered = pl.DataFrame({KEY: keys, "low": self.low, "high": self.high}).with_row_index(KEY_ID).sort(KEY, "low")
        read = pl.col("high").cum_max().shift(1).over(KEY)
        cut = ordered.with_columns(pl.max_horizontal("low", read.fill_null(LOWEST)).alias("low")).sort(KEY_ID)
        low = cut["low"].to_numpy()
        return TimeRanges(self.schema, self.found, low, np.maximum(low, self.high))

    def _is_apart(self, keys: pl.Series) -> bool:
        """Return True if the ranges of each key are disjoint and in order."""
        if not keys.is_sorted():
            return keys.n_unique() == len(keys)
        same = (keys.slice(1) == keys.slice(0, max(0, len(keys) - 1))).to_numpy()
        return not (same & (self.low[1:] < self.high[:-1])).any()

    @staticmethod
    def _seen(each: _KeyRows, rows: Ints, known: Flags, nearest: Ints, exists: Flags, *, is_later: bool) -> None:
        """Take a source's nearest entries into account: a newer source decides whether an entry exists."""
        (places,) = known.nonzero()
        values = each.order[rows[places]]
        nearer = values >= nearest[places] if is_later else values <= nearest[places]
        places, values = places[nearer], values[nearer]
        nearest[places] = values
        exists[places] = ~each.source.removed(rows[places])

    def read(self) -> pl.DataFrame:
        """Return the entries, sorted by the number of their range and the order."""
        frames = []
        for each in self.found:
            rows, ranges = expanded(each.position(self.low), each.position(self.high))
            if len(rows):
                frame = each.source.take(rows)
                frames.append(frame.insert_column(frame.width, pl.Series(KEY_ID, ranges.astype(np.uint32))))
        return _merged(frames, self.schema, [KEY_ID, *self.schema.order])


def entries_before(sources: Sequence[SortedRows], schema: TableSchema, bound: int) -> pl.DataFrame:
    """Return the entries of all keys before a value of the order.

    Args:
        sources: the runs and blocks of a table that replaces its entries, oldest first.
        schema: of the table.
        bound: the value.

    Returns:
        `_key`, the order and the columns, sorted by address.
    """
    name, frames = next(iter(schema.order)), []
    for source in sources:
        (rows,) = (source.ordinals(name, 0, source.rows) < bound).nonzero()
        if len(rows):
            frames.append(source.take(rows))
    return _merged(frames, schema, [HASH, KEY, *schema.order]).select(KEY, *schema.shown)


def _merged(frames: list[pl.DataFrame], schema: TableSchema, address: list[str]) -> pl.DataFrame:
    if not frames:
        return no_rows(schema).select(KEY_ID, KEY, *schema.shown)
    found = with_sources(frames)
    if len(frames) > 1:
        found = found.sort(*address, maintain_order=True) if KEY in address else merged_sequences(found, address)
    merged = schema.rule.merge(found, beginnings(found, address), complete=True)
    return merged.select(*([KEY_ID] if KEY_ID in merged.columns else []), KEY, *schema.shown)


def _rows_of(source: SortedRows, name: str, keys: pl.Series, hashes: Hashes) -> _KeyRows | None:
    """Return the rows of some keys in a source, None if it has none."""
    start, end = source.find(hashes)
    (hits,) = (start < end).nonzero()
    if not len(hits):
        return None
    requested = keys.gather(hits)
    is_own = ((source.keys(start[hits]) == requested) & (source.keys(end[hits] - 1) == requested)).to_numpy()
    for hit in hits[~is_own].tolist():  # keys that share a hash
        first, key = int(start[hit]), keys[hit]
        own = [row for row, each in enumerate(source.keys(np.arange(first, end[hit])), first) if each == key]
        start[hit], end[hit] = (own[0], own[-1] + 1) if own else (0, 0)
    return _KeyRows(source, source.ordinals(name, start, end), start, end)


def _bounds(column: pl.Series, unbounded: int) -> Ints:
    if not column.null_count() and column.dtype in (pl.Int64, pl.Datetime):
        found: Ints = column.to_physical().to_numpy()
        return found
    return column.to_physical().cast(pl.Int64).fill_null(unbounded).to_numpy().astype(np.int64)
