"""Windows of many panes, merged from nodes of a binary tree over these.

A node of level k is the merge of 2^k neighbouring panes, of which the first has a multiple of 2^k as its number. A window of n
panes is the merge of at most 2·log2(n) nodes; merged from its panes, each of these would be merged again for every window.

Which nodes these are depends on the window's place in time alone, and not on the windows computed beside it: floats are added up
in one order, and have the same last digit in a stream, in a batch and in an offline query.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from umbel.changes import runs
from umbel.changes.runs import Ints, Sorted, expand
from umbel.state.runs.sorting import gathered
from umbel.types.schema import WEIGHT
from umbel.windowing.partials import PAIRS, Counted, Partials, merged_in_portions, parts_of, spread

LEAST = 8
"""Windows of fewer panes are merged from these."""
PAIR = 2


@dataclass(frozen=True, slots=True)
class Windowed:
    """Windows of keys, as ranges of numbers of panes.

    Args:
        ids: their keys.
        first: the number of the first pane.
        last: the number of the pane behind the last one.
    """

    ids: Ints
    first: Ints
    last: Ints

    def only(self, chosen: Ints | slice) -> Windowed:
        """Return some of them, by their positions."""
        return Windowed(self.ids[chosen], self.first[chosen], self.last[chosen])


class Level:
    """The nodes of one level that have panes.

    Args:
        ids: their keys, in order.
        places: their numbers, in order within each key.
        rows: the positions of their states among those of all levels.
    """

    def __init__(self, ids: Ints, places: Ints, rows: Ints) -> None:
        self.ids, self.places, self.rows = ids, places, rows
        self._sorted = Sorted(ids, places)

    def found(self, points: Ints, ids: Ints, places: Ints) -> tuple[Ints, Ints]:
        """Return the points whose node has panes, and the position of its state."""
        at = np.minimum(self._sorted.first_at_or_after(ids, places), len(self.ids) - 1)
        has_panes = (self.ids[at] == ids) & (self.places[at] == places)
        return points[has_panes], self.rows[at[has_panes]]


@dataclass(frozen=True, slots=True)
class Tree:
    """The nodes over the panes of some keys.

    Args:
        states: of the nodes, with `_weight`; first those of the panes.
        levels: from the panes on.
        partials: the states that are merged.
    """

    states: pl.DataFrame
    levels: list[Level]
    partials: Partials

    @classmethod
    def of(cls, states: pl.DataFrame, ids: Ints, places: Ints, partials: Partials, panes: int) -> Tree:
        """Return the tree for windows of a number of panes.

        Args:
            states: of the panes, with `_weight`.
            ids: their keys, in order.
            places: their numbers, in order within each key, each once.
            partials: the states that are merged.
            panes: how many a window has.
        """
        levels = [Level(ids, places, np.arange(len(ids)))]
        for _ in range(panes.bit_length() - 1):
            below = levels[-1]
            parents = below.places >> 1
            begins = runs.changes(below.ids, parents)
            starts, is_pair = np.flatnonzero(begins), runs.lengths(begins) == PAIR
            rows, firsts = below.rows[starts], starts[is_pair]
            if len(firsts):
                both = np.stack((below.rows[firsts], below.rows[firsts + 1])).T.ravel()
                merged = partials.merge(
                    gathered(states, both), np.tile([True, False], len(firsts)), [pl.col(WEIGHT).sum()]
                )
                rows[is_pair] = len(states) + np.arange(len(merged))
                states = pl.concat([states, merged])
            levels.append(Level(below.ids[starts], parents[starts], rows))
        return cls(states, levels, partials)

    def merged(self, windows: Windowed, points: Ints) -> Iterator[pl.DataFrame]:
        """Yield the merged states of windows that have panes, with their points."""
        owners, rows = self.nodes(windows)
        yield from merged_in_portions(self.states, points[owners], rows, self.partials)

    def nodes(self, windows: Windowed) -> tuple[Ints, Ints]:
        """Return windows, in order, and their nodes, each in order of time."""
        owners, rows = (np.concatenate(parts) for parts in zip(*self._nodes(windows), strict=True))
        order = np.argsort(owners, kind="stable")
        return owners[order], rows[order]

    def _nodes(self, windows: Windowed) -> Iterator[tuple[Ints, Ints]]:
        """Yield windows and the states of their nodes, for each window in order of time."""
        mine, ids, first, last = np.arange(len(windows.ids)), windows.ids, windows.first, windows.last
        behind = list[tuple[Ints, Ints]]()
        for level in self.levels:
            begins, ends = (first < last) & (first & 1 == 1), (first < last) & (last & 1 == 1)
            yield level.found(mine[begins], ids[begins], first[begins])
            behind.append(level.found(mine[ends], ids[ends], last[ends] - 1))
            first, last = (first + 1) >> 1, last >> 1
        yield from reversed(behind)


def fold_by_tree(
    states: pl.DataFrame, ids: Ints, places: Ints, windows: Windowed, partials: Partials, panes: int
) -> pl.DataFrame:
    """Return the merged state of each window.

    The columns are `_weight` and the state columns, which are null for a window without panes.

    Args:
        states: of panes, with `_weight`.
        ids: their keys, in order.
        places: their numbers, in order within each key, each once.
        windows: to be merged.
        partials: the states that are merged.
        panes: how many a window has.
    """
    columns = states.select(WEIGHT, *partials.columns)
    search = Sorted(ids, places)
    low, high = (search.first_at_or_after(windows.ids, bound) for bound in (windows.first, windows.last))
    is_brief = high - low <= max(PAIR, panes.bit_length() // 2)
    brief, others = np.flatnonzero(is_brief), np.flatnonzero(~is_brief)
    owners, entries = expand(low[brief], high[brief])
    found = [*merged_in_portions(columns, brief[owners], entries, partials)]
    if len(others):
        is_needed = np.isin(ids, windows.ids[others])
        tree = Tree.of(columns.filter(is_needed), ids[is_needed], places[is_needed], partials, panes)
        at_once = PAIRS // (2 * len(tree.levels))
        for start in range(0, len(others), at_once):
            chosen = others[start : start + at_once]
            found += tree.merged(windows.only(chosen), chosen)
    return spread(columns, found, len(windows.ids))


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges [low, high) of entries, in the order of their keys.

    Args:
        points: the point of each range.
        ids: its key.
        low: where it begins.
        ended: before it all entries of the range count, from it on some.
        high: where it ends.
    """

    points: Ints
    ids: Ints
    low: Ints
    ended: Ints
    high: Ints


def fold_ranges(states: pl.DataFrame, ids: Ints, ranges: Ranges, partials: Partials, counted: Counted) -> pl.DataFrame:
    """Return the merged state of each range.

    The columns are `_weight` and the state columns, which are null for an empty range.

    Args:
        states: of entries, with `_weight`.
        ids: their keys, in order.
        ranges: to be merged.
        partials: the states that are merged.
        counted: selects entries that count behind `ended`.
    """
    columns = states.select(WEIGHT, *partials.columns)
    rows = np.flatnonzero(np.isin(ids, ranges.ids))
    mine = ids[rows]
    low, ended, high = (np.searchsorted(rows, each) for each in (ranges.low, ranges.ended, ranges.high))
    first = np.searchsorted(mine, ranges.ids)
    windows = Windowed(ranges.ids, low - first, ended - first)
    places = np.arange(len(mine)) - np.searchsorted(mine, mine)
    tree = Tree.of(gathered(columns, rows), mine, places, partials, int((ended - low).max(initial=1)))
    found = list[pl.DataFrame]()
    for part in parts_of(2 * len(tree.levels) + high - ended):
        owners, nodes = tree.nodes(windows.only(part))
        later, entries = expand(ended[part], high[part])
        is_counted = counted(ranges.points[part][later], rows[entries])
        owners = np.concatenate((owners, later[is_counted]))
        order = np.argsort(owners, kind="stable")
        chosen = np.concatenate((nodes, entries[is_counted]))[order]
        found += merged_in_portions(tree.states, part.start + owners[order], chosen, partials)
    return spread(columns, found, len(ranges.points))
