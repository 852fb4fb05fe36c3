"""Point lookups in tiles without frames, for online queries.

The values are those of `tile_reads`, from the same entries and by the same rules. Where they cannot be computed this way the
caller uses `tile_reads`: an aggregate has no `folding` (`is_able` is False), or an instant cuts an entry (the result is None).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from umbel.aggregates.aggregate import Aggregate
from umbel.aggregates.point_states import Fold, PointStates, Spans
from umbel.changes import runs
from umbel.changes.runs import Flags, Ints
from umbel.state.runs.points import PointRecords, RowSlice
from umbel.state.runs.sorting import order_of
from umbel.state.tables import State
from umbel.types.schema import WEIGHT
from umbel.types.windows import SECOND
from umbel.windowing.tile_reads import are_unknown
from umbel.windowing.tiles import Effects, Tiles, exceeds, middle
from umbel.windowing.tiling import BASE, CHECKSUM, ENDED, FIRST, LAST, NEVER, RETRACTED, SINCE, UNTIL, WINDOW


@dataclass(frozen=True)
class Pointwise:
    """Point lookups in the stored entries of tiles.

    Args:
        tiles: the stored tiles.
        aggregates: those requested.
    """

    tiles: Tiles
    aggregates: tuple[Aggregate, ...]

    @cached_property
    def is_able(self) -> bool:
        """True if all aggregates have a `folding`."""
        return all(each.folding(at) for each, at in self.tiles.partials.parts)

    def read(self, state: State, keys: list[bytes]) -> list[list[RowSlice]]:
        """Return the stored entries of each key."""
        return self.tiles.stored(state).slices(keys)

    def values(self, stored: Sequence[Sequence[RowSlice]], at: Ints) -> PointValues | None:
        """Return the values of each key; None when frames are needed.

        Args:
            stored: the entries of each key.
            at: the instant of each, µs.
        """
        entries = _Entries(self.tiles, PointRecords(stored, self.tiles.columns), at)
        found = entries.born <= at
        states = None if entries.is_past(found) else entries.states(self._lengths)
        if states is None:
            return None
        values: list[Sequence[Any]] = [()] * len(self.aggregates)
        with np.errstate(all="ignore"):
            for index, window, fold in self._folds:
                values[index] = fold(states[window], at)
        return PointValues(found, values, entries)

    @cached_property
    def _lengths(self) -> WindowLengths:
        return WindowLengths(self.tiles)

    @cached_property
    def _folds(self) -> list[tuple[int, int, Fold]]:
        """For each aggregate its index, the index of its window, and its fold."""
        positions = dict(self.tiles.partials.parts)
        windows: dict[Any, int] = {window: number for number, window in enumerate(self.tiles.windows)}
        folds = [(windows[each.window], each.folding(positions[each.algebra])) for each in self.aggregates]
        return [(index, window, fold) for index, (window, fold) in enumerate(folds) if fold]


@dataclass(frozen=True, slots=True)
class PointValues:
    """The values of some keys, each as of an instant.

    Args:
        found: True for keys that existed.
        values: those of each aggregate.
        entries: the entries they were computed from.
    """

    found: Flags
    values: list[Sequence[Any]]
    entries: _Entries

    @property
    def changed(self) -> Ints:
        """The instant of the last change of each key's values, µs.

        Before all instants (−NEVER) for a key not found.
        """
        return self.entries.changed


class _Entries:
    """The entries of the queried keys, grouped by key."""

    def __init__(self, tiles: Tiles, records: PointRecords, at: Ints) -> None:
        self._tiles, self._records, self._at = tiles, records, at
        self._spans = Spans(records.owners, len(at))
        self._window, self._weight = records[WINDOW], records[WEIGHT]
        self._first, self._last = records[FIRST], records[LAST]
        self._order: Ints | None = None
        if not records.are_merged:
            self._collapse()
        self._since, self._until = self._first, self._last
        if tiles.is_keyed:
            self._since, self._until = records[SINCE], records[UNTIL]

    def _collapse(self) -> None:
        """Sort entries of several sources; those of a collapsed tile get its span.

        The states need no merge: they count where their tile does.
        """
        owners, tiles = self._spans.owners, self._tiles
        self._order = order = order_of(owners, self._window.astype(np.int64), self._first)
        self._window, self._weight = self._window[order], self._weight[order]
        first, last = self._first[order], self._last[order]
        tile = runs.changes(owners, self._window, first // tiles.grains[self._window])
        starts = np.flatnonzero(tile)
        collapsed = exceeds(tile, tile | runs.changes(first), tiles.tiling.exact)
        sizes = np.diff(starts, append=len(first))
        collapsed |= np.repeat(np.logical_or.reduceat(first < last, starts), sizes)
        self._first = np.where(collapsed, np.repeat(first[starts], sizes), first)
        self._last = np.where(collapsed, np.repeat(np.maximum.reduceat(last, starts), sizes), last)
        if tiles.is_retractable:  # rows of one entry in several sources may cancel out
            entry = tile | runs.changes(self._first)
            total = np.add.reduceat(self._weight, np.flatnonzero(entry))
            self._weight = np.repeat(total, runs.lengths(entry))

    @cached_property
    def born(self) -> Ints:
        """The first instant of each key."""
        if not self._tiles.is_retractable and not self._tiles.is_keyed:
            return self._spans.least(self._first, NEVER)
        existed = self._weight != 0
        if not self._tiles.counts_retired:
            existed |= self._window == BASE
        if self._tiles.is_keyed:
            existed |= (self._records[ENDED] != 0) | (self._records[CHECKSUM] != 0)
        return self._spans.least(np.where(existed, self._since, NEVER), NEVER)

    @property
    def changed(self) -> Ints:
        """The last instant at which each key's values changed, at least its first."""
        position, weight = middle(self._first, self._last), np.ascontiguousarray(self._weight)
        effects = Effects.of(self._tiles, self._spans.owners, self._window, position, self._since, self._until, weight)
        last = self._spans.largest(effects.latest(self._spans.spread(self._at)), -NEVER)
        return np.maximum(last, np.where(self.born <= self._at, self.born, -NEVER)) if self._tiles.is_keyed else last

    def is_past(self, found: Flags) -> bool:
        """Return True if a key is queried where its entries do not have the values.

        That is before its horizon, and where retracted effects may have left their instants.
        """
        if self._tiles.is_keyed and np.count_nonzero(self._records[RETRACTED]) and self._are_unknown().any():
            return True
        is_base = self._window == BASE
        if not np.count_nonzero(is_base):  # takes a third of the time of `any`, also below
            return False
        horizon = self._spans.largest(np.where(is_base, self._last, -NEVER), -NEVER)
        return bool((found & (self._at < horizon)).any())

    def _are_unknown(self) -> Flags:
        return are_unknown(self._tiles, self._spans, self._at, self._records.__getitem__)

    def states(self, lengths: WindowLengths) -> list[PointStates] | None:
        """Return for each window the states that count; None if an instant cuts an entry."""
        at, second = self._spans.spread(self._at), self._spans.spread(self._at // SECOND * SECOND)
        position = middle(self._first, self._last)
        is_mine = position >= second - lengths.lengths[self._window]
        is_out = self._until > at
        if np.count_nonzero(is_out):
            if np.count_nonzero(is_mine & is_out & (self._since <= at)):
                return None
            is_mine &= ~is_out
        (rows,) = is_mine.nonzero()
        windows, owners = lengths.windows[self._window[rows]], self._spans.owners[rows]
        if self._order is not None:
            rows = self._order[rows]
        return [self._of(rows, owners, windows == number) for number in range(len(self._tiles.windows))]

    def _of(self, rows: Ints, owners: Ints, mine: Flags) -> PointStates:
        return PointStates(owners[mine], len(self._at), self._records, rows[mine])


class WindowLengths:
    """The lengths of windows, by window number of an entry; the base is last.

    Args:
        tiles: the stored tiles.
    """

    def __init__(self, tiles: Tiles) -> None:
        base = (-NEVER, -1) if tiles.forever is None else (NEVER, tiles.forever)
        self.lengths = np.append(tiles.lengths[:-1], base[0])
        """µs; −NEVER where no entry counts."""
        self.windows = np.array([*range(len(tiles.windows)), base[1]], np.int64)
        """The number of the window that counts the entries; −1 for none."""
