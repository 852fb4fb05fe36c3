"""The values of one key as of one instant, without frames: what an online question asks.

It says what `tile_answers` says, from the same entries and by the same rules. Where it cannot (an entry is cut by the instant, or
an aggregate has no short way), it says nothing and the frames are asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from umbel.aggregates.aggregate import Aggregate
from umbel.aggregates.columns import Columns
from umbel.operators.runs import Ints
from umbel.operators.tables import State
from umbel.operators.tiles import Tiles
from umbel.operators.tiling import BASE, FIRST, LAST, SINCE, UNTIL, WINDOW
from umbel.state.records import Array, Records
from umbel.state.rows import RowCodec
from umbel.types.schema import WEIGHT
from umbel.types.windows import SECOND

TABLE = "tiles"


@dataclass(frozen=True)
class Pointwise:
    """Answers questions about tiles one at a time.

    Args:
        tiles: what is kept.
    """

    tiles: Tiles

    @cached_property
    def is_able(self) -> bool:
        """Whether there are tiles at all (not so for discrete windows), and all aggregates have a short way."""
        return bool(self.tiles.windows) and all(each.folds(at) for each, at in self.tiles.partials.parts)

    @cached_property
    def missing(self) -> list[Any]:
        """The values of a key never seen."""
        return [each.missing for each in self.tiles.aggregates]

    def read(self, state: State, keys: list[bytes]) -> list[Records | None]:
        """Return the entries of each key."""
        found = state.reader.get(state.owner, TABLE, keys)
        return [None if value is None else self._codec.records(value) for value in found]

    def values(self, entries: Records | None, at: int) -> tuple[bool, list[Any]] | None:
        """Return whether a key was there, and the values of the aggregates; None when the frames have to be asked.

        Args:
            entries: of the key.
            at: the instant, µs.
        """
        if entries is None or not len(entries):
            return False, self.missing
        return self._by_marks(entries, at) if self._is_mixed else self._by_ranges(entries, at)

    def _by_ranges(self, entries: Records, at: int) -> tuple[bool, list[Any]] | None:
        """Answer where the entries of a window follow each other in time."""
        first, last = entries[FIRST], entries[LAST]
        starts: list[int] = entries[WINDOW].searchsorted(self._numbers).tolist()
        born = min(first.item(start) for start, end in pairwise(starts) if start < end)
        if starts[1] and at < last.item(0):  # the base comes first
            return None
        values: list[Any] = list(self.missing)
        for number, aggregates in enumerate(self._readers):
            low, high = starts[number + 1], starts[number + 2]
            end = low + int(last[low:high].searchsorted(at, "right"))
            length = self.tiles.windows[number].duration_us
            begin = low if length is None else _first_placed(first, last, low, end, at // SECOND * SECOND - length)
            if end < high and first.item(end) <= at:
                return None
            if born <= at:
                is_based = length is None and starts[1] > 0
                held = entries.where(_with_base(begin, end) if is_based else slice(begin, end))
                for index, each, columns in aggregates:
                    values[index] = each.folded(held, columns, at)
        return born <= at, values

    def _by_marks(self, entries: Records, at: int) -> tuple[bool, list[Any]] | None:
        """Answer where changes take effect at other instants than those of their rows, or are taken back."""
        window, first, last = (np.ascontiguousarray(entries[name]) for name in (WINDOW, FIRST, LAST))
        since, until = (np.ascontiguousarray(entries[name]) for name in self._entered)
        is_base = window == BASE
        is_found = self._born(entries, is_base, since, until) <= at
        if is_found and is_base.any() and at < last[is_base].max():
            return None
        counted = until <= at
        place = first + (last - first) // 2
        values: list[Any] = [None] * len(self.tiles.aggregates)
        for number, aggregates in enumerate(self._readers):
            mine = window == number
            length = self.tiles.windows[number].duration_us
            if length is None:
                mine |= is_base
            else:
                mine &= place >= at // SECOND * SECOND - length
            if (since[mine & ~counted] <= at).any():
                return None
            if is_found:
                held = entries.where(mine & counted)
                for index, each, columns in aggregates:
                    values[index] = each.folded(held, columns, at)
        return is_found, values if is_found else self.missing

    def _born(self, entries: Records, is_base: Any, since: Ints, until: Ints) -> int:
        """Return the first instant of the key."""
        lived = is_base | (entries[WEIGHT] != 0)
        if self.tiles.is_keyed:
            lived |= since < until
        return int(since[lived].min(initial=np.iinfo(np.int64).max))

    @cached_property
    def _is_mixed(self) -> bool:
        return self.tiles.is_keyed or self.tiles.is_retractable

    @cached_property
    def _numbers(self) -> Array:
        """The numbers of the windows, base first, and one more."""
        return np.arange(BASE, len(self.tiles.windows) + 1, dtype=np.int8)

    @cached_property
    def _entered(self) -> tuple[str, str]:
        return (SINCE, UNTIL) if self.tiles.is_keyed else (FIRST, LAST)

    @cached_property
    def _readers(self) -> list[list[tuple[int, Aggregate, Columns]]]:
        """For each window the aggregates over it: their number, themselves and the columns of their state."""
        places = dict(self.tiles.partials.parts)
        numbered = list(enumerate(self.tiles.aggregates))
        return [
            [(index, each, places[each.algebra]) for index, each in numbered if each.window == window]
            for window in self.tiles.windows
        ]

    @cached_property
    def _codec(self) -> RowCodec:
        return RowCodec(self.tiles.columns)


def _first_placed(first: Array, last: Array, low: int, high: int, begin: int) -> int:
    """Return the first of the entries in a range whose place is not before an instant."""
    starts = first[low:high]
    return low + int((starts + (last[low:high] - starts) // 2).searchsorted(begin))


def _with_base(begin: int, end: int) -> Array:
    return np.concatenate(([0], np.arange(begin, end)))
