"""Values of points from state, and their completion from a part of the history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl


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
        report: a row for each point, see `LookedUpAggregation.lookup`.
        completion: answers some of the points whose `_history` is set; None if there are none.
    """

    report: pl.DataFrame
    completion: Completion | None = None
