"""The states of points in a window, folded from entries placed at instants.

A point counts the entries of its window up to its instant. Most of these have ended by then, and are a range of the stored order.
Where a key has many points their ranges overlap, and are merged from nodes of a tree instead of each from its entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from umbel.changes.runs import Flags, Ints, Sorted, running_maximum
from umbel.state.runs.sorting import gathered
from umbel.types.windows import SECOND, Continuous
from umbel.windowing.pane_tree import LEAST, Ranges, fold_ranges
from umbel.windowing.partials import Partials, fold, items_of, parts_of
from umbel.windowing.points import Points
from umbel.windowing.tiling import NEVER

SHARED = 64
"""Keys whose ranges have so many times their entries, or items, are folded by a tree."""
MANY = 1 << 16
"""Ranges of fewer entries in total, or of fewer items of these, are folded from them: a tree takes longer."""
ITEMS = 16_000_000
"""The most items that the entries of points which are folded at once have: the states of all of them are in memory."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The entries of one window, sorted by key and position.

    Args:
        states: their states and weights.
        ids: of their keys.
        position: the instant, in µs, that determines whether an entry is in the window.
        since: the instant its first change takes effect.
        until: the instant its last change takes effect.
        grain: the maximum distance of an entry's position from its instants, µs.
        is_running: True if each state is the running merge of all entries before it as well.
    """

    states: pl.DataFrame
    ids: Ints
    position: Ints
    since: Ints
    until: Ints
    grain: int
    is_running: bool = False


def portions(entries: Placed, points: Points, window: Continuous) -> Iterator[slice]:
    """Yield slices of the points, each of a bounded number of items."""
    sizes = items_of(entries.states)
    if sizes is None or not len(points.at):
        yield slice(0, len(points.at))
        return
    yield from parts_of(_items(sizes, *_ranges(entries, points, window)), ITEMS)


def folded(entries: Placed, points: Points, window: Continuous, partials: Partials) -> tuple[pl.DataFrame, Flags]:
    """Return the state of each point in a window, and a mask of cut points.

    The state is null where the window is empty. A point is cut if it lies between the first and the last change of an entry in
    it.
    """
    low, high = _ranges(entries, points, window)
    cut = np.zeros(len(points.at), np.bool_)

    def counted(point: Ints, entry: Ints) -> Flags:
        at = points.at[point]
        is_in: Flags = entries.until[entry] <= at
        cut[point[~is_in & (entries.since[entry] <= at)]] = True
        return is_in

    busy = np.flatnonzero(_are_busy(entries, points, low, high))
    if not len(busy):
        return fold(entries.states, low, high, partials, counted), cut
    others = np.setdiff1d(np.arange(len(low)), busy)
    states = [
        fold(entries.states, low[others], high[others], partials, lambda point, entry: counted(others[point], entry)),
        fold_ranges(
            entries.states, entries.ids, _divided(entries, points, busy, low[busy], high[busy]), partials, counted
        ),
    ]
    return gathered(pl.concat(states, rechunk=True), np.argsort(np.concatenate((others, busy)))), cut


def _are_busy(entries: Placed, points: Points, low: Ints, high: Ints) -> Flags:
    """Return a mask of the points whose ranges overlap enough for a tree.

    An entry whose state has items is as many as these.
    """
    sizes = items_of(entries.states)
    if sizes is None:
        sizes = np.ones(len(entries.ids), np.int64)
    items = _items(sizes, low, high)
    if int(items.sum()) < MANY:
        return np.zeros(len(low), np.bool_)
    count = int(max(points.ids.max(), entries.ids.max())) + 1
    total = np.bincount(points.ids, items, minlength=count)
    is_shared = total > SHARED * np.bincount(entries.ids, sizes, minlength=count)
    is_busy: Flags = is_shared[points.ids] & (high - low > LEAST)
    return is_busy


def _items(sizes: Ints, low: Ints, high: Ints) -> Ints:
    """Return the items of each range of entries, of the items of each entry."""
    total = np.concatenate(([0], np.cumsum(sizes)))
    items: Ints = np.maximum(total[high] - total[low], 0)
    return items


def _divided(entries: Placed, points: Points, chosen: Ints, low: Ints, high: Ints) -> Ranges:
    """Return ranges divided into entries that have all ended, and those of which some have."""
    ids, at = points.ids[chosen], points.at[chosen]
    latest = running_maximum(entries.ids, entries.until)
    earliest = -running_maximum(entries.ids.max() - entries.ids[::-1], -entries.since[::-1])[::-1]
    ended, begun = (Sorted(entries.ids, each).first_after(ids, at) for each in (latest, earliest))
    ended = np.clip(ended, low, high)
    return Ranges(chosen, ids, low, ended, np.clip(begun, ended, high))


def _ranges(entries: Placed, points: Points, window: Continuous) -> tuple[Ints, Ints]:
    """Return for each point the range of the entries that may count."""
    search = Sorted(entries.ids, entries.position)
    if entries.is_running:
        high = search.first_after(points.ids, points.at)
        return np.maximum(high - 1, search.first_at_or_after(points.ids, np.full(len(points.at), -NEVER))), high
    if window.duration_us is None:
        ends = np.full(len(points.at), NEVER)
        return search.first_at_or_after(points.ids, -ends), search.first_after(points.ids, ends)
    begin = points.at // SECOND * SECOND - window.duration_us
    return search.first_at_or_after(points.ids, begin), search.first_after(points.ids, points.at + entries.grain)
