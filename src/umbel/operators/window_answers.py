"""What discrete windows answer when their value depends on the instant it is asked for: that of the last window closed."""

from __future__ import annotations

import numpy as np
import polars as pl

from umbel.operators.groups import Groups
from umbel.operators.points import HISTORY, Points, shown
from umbel.operators.tile_changes import Moments
from umbel.operators.tile_kernel import KEY, with_ids
from umbel.operators.tiling import ID
from umbel.operators.timeline import TIME
from umbel.operators.window_grids import ALWAYS
from umbel.operators.window_kernel import Tables
from umbel.operators.windows import Panes, Results
from umbel.types.windows import SECOND


def lookup(panes: Panes, tables: Tables, points: pl.DataFrame) -> pl.DataFrame:
    """Return the value of each point from the state; `_history` where what was then is not known any more.

    Args:
        panes: what is kept.
        tables: of the shard.
        points: `_key` and `_time`.
    """
    keys = points[KEY].unique().sort()
    entries = tables.entries.numbered(keys)
    asked = with_ids(points, keys)
    at = Points.of(asked).at
    return _answer(panes, entries, asked, len(keys)).insert_column(1, pl.Series(HISTORY, at < tables.mark()))


def replay(panes: Panes, changes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Return the value of each point from the changes consumed.

    Args:
        panes: what would have been kept.
        changes: of the input.
        points: the key columns and `_time`.
    """
    keys = Groups(points, panes.keys)
    asked, partial = keys.numbered(points), keys.numbered(panes.combine(keys.known(changes)))
    return _answer(panes, panes.fold(panes.spread(partial)), asked, len(keys))


def moments(panes: Panes, changes: pl.DataFrame) -> pl.DataFrame:
    """Return the key columns and `_time`, the end of every window closed by now that has a result."""
    keys = Groups(changes, panes.keys)
    partial = keys.numbered(panes.combine(changes))
    closed = changes.select(pl.col(panes.along or panes.timestamp).dt.epoch("us").max() // SECOND * SECOND).item()
    low, high = np.full(len(keys), ALWAYS), np.full(len(keys), closed)
    told = panes.results(panes.fold(panes.spread(partial)), low, high)
    return keys.named(Moments(told.ids, told.ends).frame)


def _answer(panes: Panes, entries: pl.DataFrame, asked: pl.DataFrame, keys: int) -> pl.DataFrame:
    points = Points.of(asked)
    values = panes.values(entries, Results(points.ids, points.at), are_told=False)
    found = panes.due(entries, ALWAYS, keys)[points.ids] <= points.at
    told = panes.results(entries, np.full(keys, ALWAYS), np.full(keys, points.at.max(initial=ALWAYS)))
    changed = Moments(told.ids, told.ends).before(points)
    columns = {name: values[name] for name in values.columns if name not in (ID, TIME)}
    return shown(panes.aggregates, columns, found, changed)
