"""Values of points from state, and their completion from a part of the history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from umbel.windowing.points import Points
from umbel.windowing.tiling import BASE, FIRST, ID, LAST, WINDOW


@dataclass(frozen=True, slots=True)
class Completion:
    """The answers to points whose values are in state up to some changes.

    Args:
        points: a mask of these points.
        since: the first instant of the changes that are needed, µs.
        until: the last one, µs.
        report: returns the whole report from the changes of their groups between the two instants.
    """

    points: pl.Series
    since: int
    until: int
    report: Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The values of points that the state has.

    Args:
        report: a row for each point: `_at_found`, `_at_history`, `_at_changed` (the instant of the last change of the
            values) and the aggregates. Where `_at_history` is set the state no longer has the value, and `replay` must
            compute it.
        completion: answers some of the points whose `_at_history` is set; None if there are none.
    """

    report: pl.DataFrame
    completion: Completion | None = None


def cut_entries(entries: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """Return the entries that some points lie in: between their first and their last change."""
    collapsed = entries.filter((pl.col(WINDOW) != BASE) & (pl.col(FIRST) < pl.col(LAST)))
    points, ids = Points.of(queries).sorted(), collapsed[ID].to_numpy().astype(np.int64)
    begin, end = (points.first_at_or_after(ids, collapsed[name].to_numpy()) for name in (FIRST, LAST))
    return collapsed.filter(pl.Series(begin < end)).unique([ID, WINDOW, FIRST])
