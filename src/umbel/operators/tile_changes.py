"""When the values of continuous windows change: rows come in, are taken back, and leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from umbel.operators import runs
from umbel.operators.points import TIME, Points
from umbel.operators.runs import Ints, Sorted
from umbel.operators.tiling import BASE, ID, NEVER
from umbel.types.windows import SECOND

if TYPE_CHECKING:
    from umbel.operators.tiles import Tiles


MANY = 2**40
"""More rows than an entry has."""


@dataclass(frozen=True, slots=True)
class Effects:
    """When entries make values change, one for each entry.

    Args:
        comes: the instant it comes into its window; before all instants where nobody sees that.
        leaves: the instant what is in its place leaves; before all instants where there is nothing any more, after all of them
            in a window without beginning.
    """

    comes: Ints
    leaves: Ints

    @classmethod
    def of(cls, tiles: Tiles, ids: Ints, window: Ints, place: Ints, since: Ints, until: Ints, weight: Ints) -> Effects:
        """Return the effects of entries.

        Args:
            tiles: what they belong to.
            ids: of their keys, equal ones side by side; within them windows and places.
            window: the numbers of their windows, that of the base last.
            place: the instant that decides whether the window reaches it.
            since: when its first change takes effect.
            until: when its last change takes effect.
            weight: how many rows it holds, net.
        """
        leaves = (place + tiles.lengths[window]) // SECOND * SECOND + SECOND
        in_time = until < leaves
        begins = runs.changes(ids, window, place)
        # of an entry that ends after it has left, what came in time was there until then: its weight does not tell
        counted = np.where(in_time, weight, np.where(since < leaves, MANY, 0))
        alive = np.add.reduceat(counted, np.flatnonzero(begins)) if len(begins) else weight
        gone = np.repeat(alive == 0, runs.lengths(begins))
        seen = in_time if tiles.is_keyed else in_time & (~gone | (window == BASE))
        return cls(np.where(seen, until, -NEVER), np.where(gone, -NEVER, leaves))

    @property
    def last(self) -> Ints:
        """The last instant at which each changes something."""
        last: Ints = np.maximum(self.comes, self.leaves)
        return last

    def latest(self, at: Ints) -> Ints:
        """Return of each the last change not after an instant; before all instants where there is none."""
        parts = (np.where(each <= at, each, -NEVER) for each in (self.comes, self.leaves))
        latest: Ints = np.maximum(*parts)
        return latest


def middle(first: Ints, last: Ints) -> Ints:
    """Return where entries are placed that span some time."""
    return first + (last - first) // 2


@dataclass(frozen=True, slots=True)
class Moments:
    """The instants at which the values of keys change, in any order."""

    ids: Ints
    at: Ints

    @classmethod
    def of(cls, ids: Ints, effects: Effects) -> Moments:
        """Return the instants of effects on keys."""
        at = np.concatenate((effects.comes, effects.leaves))
        some = (at > -NEVER) & (at < NEVER)
        return cls(np.concatenate((ids, ids))[some], at[some])

    @property
    def frame(self) -> pl.DataFrame:
        """The number of the key and the instant of each: `_key_id` and `_time`."""
        at = pl.Series(TIME, self.at).cast(pl.Datetime("us", "UTC"))
        return pl.DataFrame([pl.Series(ID, self.ids.astype(np.uint32)), at])

    def before(self, points: Points) -> Ints:
        """Return for each point the last change of its key not after it; before all instants where there is none."""
        order = np.lexsort((self.at, self.ids))
        search = Sorted(self.ids[order], self.at[order])
        place = search.first_after(points.ids, points.at) - 1
        known = place >= search.first_at_or_after(points.ids, np.full(len(points.at), -NEVER))
        return np.where(known, np.append(self.at[order], -NEVER)[np.where(known, place, -1)], -NEVER)
