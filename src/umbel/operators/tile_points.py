"""The values of a few keys as of an instant each, without frames: what an online question asks.

It says what `tile_answers` says, from the same entries and by the same rules. Where it cannot (an entry is cut by the instant, or
an aggregate has no short way), it says nothing and the frames are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from umbel.aggregates.held import Fold, Held, Spans
from umbel.operators.runs import Flags, Ints
from umbel.operators.tables import State
from umbel.operators.tiles import Tiles
from umbel.operators.tiling import BASE, FIRST, LAST, SINCE, UNTIL, WINDOW
from umbel.state.records import Records
from umbel.state.rows import RowCodec
from umbel.types.schema import WEIGHT
from umbel.types.windows import SECOND

TABLE = "tiles"
NEVER = 2**62


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

    def values(self, stored: Sequence[bytes | None], at: Ints) -> tuple[Flags, list[Sequence[Any]]] | None:
        """Return whether each key was there, and the values of each aggregate; None when the frames have to be asked.

        Args:
            stored: the entries of each key.
            at: the instant of each, µs.
        """
        entries = _Entries(self.tiles, self._codec.records(stored), at)
        found = entries.born <= at
        if entries.is_past(found):
            return None
        values: list[Sequence[Any]] = [()] * len(self.tiles.aggregates)
        with np.errstate(all="ignore"):
            for held, folds in zip(entries.held(), self._folds, strict=False):
                if held is None:
                    return None
                for index, fold in folds:
                    values[index] = fold(held, at)
        return found, values

    @cached_property
    def _folds(self) -> list[list[tuple[int, Fold]]]:
        """For each window the aggregates over it: their number and how they fold."""
        places = dict(self.tiles.partials.parts)
        numbered = list(enumerate(self.tiles.aggregates))
        folds = [(index, each.window, each.folding(places[each.algebra])) for index, each in numbered]
        return [
            [(index, fold) for index, over, fold in folds if over == window and fold] for window in self.tiles.windows
        ]

    @cached_property
    def _codec(self) -> RowCodec:
        return RowCodec(self.tiles.columns)


class _Entries:
    """The entries of the keys asked for, one key's after the other's."""

    def __init__(self, tiles: Tiles, records: Records, at: Ints) -> None:
        self._tiles, self._records, self._at = tiles, records, at
        self._owners = np.repeat(np.arange(len(at)), records.counts)
        self._spans = Spans(self._owners, len(at))
        self._window = np.ascontiguousarray(records[WINDOW])
        self._first, self._last = (np.ascontiguousarray(records[name]) for name in (FIRST, LAST))
        self._since, self._until = self._first, self._last
        if tiles.is_keyed:
            self._since, self._until = (np.ascontiguousarray(records[name]) for name in (SINCE, UNTIL))
        self._is_base = self._window == BASE

    @property
    def born(self) -> Ints:
        """The first instant of each key."""
        if not self._tiles.is_retractable and not self._tiles.is_keyed:
            return self._spans.least(self._first, NEVER)
        lived = self._is_base | (self._records[WEIGHT] != 0)
        if self._tiles.is_keyed:
            lived |= self._since < self._until
        return self._spans.least(np.where(lived, self._since, NEVER), NEVER)

    def is_past(self, found: Flags) -> bool:
        """Return whether a key that was found is asked about an instant before which its entries do not know everything."""
        if not self._is_base.any():
            return False
        horizon = self._spans.largest(np.where(self._is_base, self._last, -NEVER), -NEVER)
        return bool((found & (self._at < horizon)).any())

    def held(self) -> Iterator[Held | None]:
        """Yield for each window the states that count, None where an entry is cut by the instant asked for."""
        at, second = self._spans.spread(self._at), self._spans.spread(self._at // SECOND * SECOND)
        is_in = self._until <= at
        is_cut = ~is_in & (self._since <= at)
        is_cut_anywhere = is_cut.any()
        place = self._first + (self._last - self._first) // 2
        for number, window in enumerate(self._tiles.windows):
            mine = self._window == number
            if window.duration_us is None:
                mine |= self._is_base
            else:
                mine &= place >= second - window.duration_us
            if is_cut_anywhere and (mine & is_cut).any():
                yield None
            (rows,) = (mine & is_in).nonzero()
            yield Held(self._owners[rows], len(self._at), self._records, rows)
