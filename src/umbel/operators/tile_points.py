"""The values of a few keys as of an instant each, without frames: what an online question asks.

It says what `tile_answers` says, from the same entries and by the same rules. Where it cannot (an entry is cut by the instant, or
an aggregate has no short way), it says nothing and the frames are asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from umbel.aggregates.held import Fold, Held, Spans
from umbel.operators.runs import Flags, Ints
from umbel.operators.tables import State
from umbel.operators.tile_changes import Effects, middle
from umbel.operators.tiles import Tiles
from umbel.operators.tiling import BASE, ENDED, FIRST, LAST, NEVER, SINCE, UNTIL, WINDOW
from umbel.state.records import Records
from umbel.state.rows import RowCodec
from umbel.types.schema import WEIGHT
from umbel.types.windows import SECOND

TABLE = "tiles"


@dataclass(frozen=True)
class Pointwise:
    """Answers questions about tiles.

    Args:
        tiles: what is kept.
    """

    tiles: Tiles

    @cached_property
    def is_able(self) -> bool:
        """Whether there are tiles at all (not so for discrete windows), and all aggregates have a short way."""
        return bool(self.tiles.windows) and all(each.folding(at) for each, at in self.tiles.partials.parts)

    def read(self, state: State, keys: list[bytes]) -> list[bytes | None]:
        """Return the entries of each key as they are stored."""
        return state.reader.get(state.owner, TABLE, keys)

    def values(self, stored: Sequence[bytes | None], at: Ints) -> Told | None:
        """Return what was known of each key; None when the frames have to be asked.

        Args:
            stored: the entries of each key.
            at: the instant of each, µs.
        """
        entries = _Entries(self.tiles, self._codec.records(stored), at)
        found = entries.born <= at
        held = None if entries.is_past(found) else entries.held(self._reach)
        if held is None:
            return None
        values: list[Sequence[Any]] = [()] * len(self.tiles.aggregates)
        with np.errstate(all="ignore"):
            for index, window, fold in self._folds:
                values[index] = fold(held[window], at)
        return Told(found, values, entries)

    @cached_property
    def _reach(self) -> Reach:
        return Reach(self.tiles)

    @cached_property
    def _folds(self) -> list[tuple[int, int, Fold]]:
        """Of each aggregate its number, that of its window, and how it folds."""
        places = dict(self.tiles.partials.parts)
        windows: dict[Any, int] = {window: number for number, window in enumerate(self.tiles.windows)}
        folds = [(windows[each.window], each.folding(places[each.algebra])) for each in self.tiles.aggregates]
        return [(index, window, fold) for index, (window, fold) in enumerate(folds) if fold]

    @cached_property
    def _codec(self) -> RowCodec:
        return RowCodec(self.tiles.columns)


@dataclass(frozen=True, slots=True)
class Told:
    """What was known of some keys as of an instant each.

    Args:
        found: whether each was there.
        values: those of each aggregate.
        entries: what says so.
    """

    found: Flags
    values: list[Sequence[Any]]
    entries: _Entries

    @property
    def changed(self) -> Ints:
        """Since when the values of each key have been these, µs; before all instants where it was not there."""
        return self.entries.changed


class _Entries:
    """The entries of the keys asked for, one key's after the other's."""

    def __init__(self, tiles: Tiles, records: Records, at: Ints) -> None:
        self._tiles, self._records, self._at = tiles, records, at
        self._spans = Spans(records.owners, len(at))
        self._window = records[WINDOW]
        self._first, self._last = records[FIRST], records[LAST]
        self._since, self._until = self._first, self._last
        if tiles.is_keyed:
            self._since, self._until = records[SINCE], records[UNTIL]

    @property
    def born(self) -> Ints:
        """The first instant of each key."""
        if not self._tiles.is_retractable and not self._tiles.is_keyed:
            return self._spans.least(self._first, NEVER)
        lived = (self._window == BASE) | (self._records[WEIGHT] != 0)
        if self._tiles.is_keyed:
            lived |= self._records[ENDED] != 0
        return self._spans.least(np.where(lived, self._since, NEVER), NEVER)

    @property
    def changed(self) -> Ints:
        """The last instant at which the values of each key changed."""
        place, weight = middle(self._first, self._last), np.ascontiguousarray(self._records[WEIGHT])
        effects = Effects.of(self._tiles, self._spans.owners, self._window, place, self._since, self._until, weight)
        return self._spans.largest(effects.latest(self._spans.spread(self._at)), -NEVER)

    def is_past(self, found: Flags) -> bool:
        """Return whether a key that was found is asked about an instant before which its entries do not know everything."""
        is_base = self._window == BASE
        if not np.count_nonzero(is_base):  # a third of the time of `any`, as below
            return False
        horizon = self._spans.largest(np.where(is_base, self._last, -NEVER), -NEVER)
        return bool((found & (self._at < horizon)).any())

    def held(self, reach: Reach) -> list[Held] | None:
        """Return for each window the states that count; None when one is cut by the instant asked for."""
        at, second = self._spans.spread(self._at), self._spans.spread(self._at // SECOND * SECOND)
        place = middle(self._first, self._last)
        is_mine = place >= second - reach.lengths[self._window]
        is_out = self._until > at
        if np.count_nonzero(is_out):
            if np.count_nonzero(is_mine & is_out & (self._since <= at)):
                return None
            is_mine &= ~is_out
        (rows,) = is_mine.nonzero()
        windows, owners = reach.windows[self._window[rows]], self._spans.owners[rows]
        return [self._of(rows, owners, windows == number) for number in range(len(self._tiles.windows))]

    def _of(self, rows: Ints, owners: Ints, mine: Flags) -> Held:
        return Held(owners[mine], len(self._at), self._records, rows[mine])


class Reach:
    """How far back entries count, by the number they have for their window; the base is the last of them.

    Args:
        tiles: what is kept.
    """

    def __init__(self, tiles: Tiles) -> None:
        base = (-NEVER, -1) if tiles.forever is None else (NEVER, tiles.forever)
        self.lengths = np.append(tiles.lengths[:-1], base[0])
        """µs; far below zero where nothing counts."""
        self.windows = np.array([*range(len(tiles.windows)), base[1]], np.int64)
        """The window that counts them."""
