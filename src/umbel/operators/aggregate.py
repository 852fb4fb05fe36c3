"""Aggregate: values computed from the rows of a group, in windows of event time.

Class `Aggregate`; its rule is in `aggregate_rules`, its kernels are `tiles` (continuous windows) and `windows` (discrete ones).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from umbel.aggregates import Aggregate as Algebra
from umbel.operators.aggregate_rules import check_aggregate
from umbel.operators.operator import Clock, Keyed
from umbel.operators.tables import State
from umbel.operators.tiling import Tiling
from umbel.types import dtypes
from umbel.types.schema import Schema
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

EAGER, FINAL = "eager", "final"
WINDOW = "window"
"""The key column that holds the window of a row, when windows are keys."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Keyed):
    """Compute aggregates of the rows with equal `keys`.

    Args:
        keys: the columns of the group.
        aggregates: what to compute; each has its result column in `into_field`.
        window: of the groupby: its windows become a key of the result.
        along: the datetime column used as time axis instead of the timestamp.
        emit: "eager": results and their corrections at once; "final": once, when nothing can change them.
        tiling: how finely continuous windows are kept.
    """

    keys: tuple[str, ...]
    aggregates: tuple[Algebra, ...] = ()
    window: Tumbling | Hopping | Session | None = None
    along: str | None = None
    emit: str = EAGER
    tiling: Tiling = Tiling()

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        check_aggregate(self, rows)
        keys = tuple((name, rows.dtypes[name]) for name in self.keys)
        if self.window is not None:
            keys = (*keys, (WINDOW, dtypes.Window()))
        values = tuple((each.into_field, each.result_type(rows)) for each in self.aggregates)
        return Schema(keys, values, rows.timestamp)

    @property
    def windows(self) -> tuple[Continuous | Tumbling | Hopping | Session, ...]:
        """The different windows, in the order they first occur."""
        found = (self.window or each.window for each in self.aggregates)
        return tuple(dict.fromkeys(each for each in (self.window, *found) if each is not None))

    @property
    def is_terminal(self) -> bool:
        """Whether results depend on the instant they are asked for."""
        moving = any(isinstance(each, Continuous) for each in self.windows)
        return self.emit == EAGER and (moving or any(each.needs_instant for each in self.aggregates))
