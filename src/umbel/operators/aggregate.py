"""Aggregate: values computed from the rows of a group, in windows of event time.

Class `Aggregate`; its rule is in `aggregate_rules`, its kernels are `tiles` (continuous windows) and `windows` (discrete ones).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from umbel.aggregates import Aggregate as Algebra
from umbel.operators.aggregate_rules import check_aggregate
from umbel.operators import tile_kernel
from umbel.operators.operator import Clock, Keyed
from umbel.operators.partials import Partials
from umbel.operators.tables import State
from umbel.operators.tile_answers import answer_from_changes
from umbel.operators.tiles import Tiles
from umbel.operators.tiling import Tiling
from umbel.types import dtypes
from umbel.types.schema import CHANGE_COLUMNS, Schema
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

    @property
    def inserts_only(self) -> bool:
        return False

    def exchange(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)

    @cached_property
    def tiles(self) -> Tiles:
        """How its continuous windows are kept."""
        rows, parent = self.parents[0].schema, self.parents[0]
        windows = tuple(each for each in self.windows if isinstance(each, Continuous))
        return Tiles(
            keys=self.keys,
            timestamp=rows.timestamp,
            anchor=self.along or rows.timestamp,
            windows=windows,
            aggregates=self.aggregates,
            partials=Partials.of(self.aggregates, rows, is_retractable=not parent.inserts_only),
            tiling=self.tiling,
            is_keyed=rows.is_keyed,
            is_retractable=not parent.inserts_only,
        )

    def partial(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self.tiles.combine(rows)

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        tile_kernel.step(self.tiles, changes[0], state, clock.watermark)
        return self.schema.empty()

    def lookup(self, state: State, points: pl.DataFrame) -> pl.DataFrame:
        """Return the values of a terminal aggregate from the state.

        Args:
            state: of this operator, in the shard of the points' keys.
            points: `_key` (the encoded group key) and `_time`.

        Returns:
            One row for each point: `_found`, `_history` and the aggregates. Where `_history` is set the state does not know, and
            `replay` has to be asked.
        """
        return tile_kernel.lookup(self.tiles, state, points)

    def replay(self, changes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
        """Return the values of a terminal aggregate from the changes it has consumed: what `lookup` returned at that instant.

        Args:
            changes: of the input, of the points' groups at least; `history` is enough of each.
            points: the group's columns and `_time`.

        Returns:
            One row for each point: `_found` and the aggregates.
        """
        return answer_from_changes(self.tiles, changes, points)

    def history_columns(self) -> list[str]:
        """Return the columns of the input its results depend on."""
        rows = self.parents[0].schema
        read = [*self.keys, *(each.column for each in self.aggregates if each.column), self.along, rows.timestamp]
        return list(dict.fromkeys([*(name for name in read if name is not None), *CHANGE_COLUMNS]))

    def history(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return what of changes is worth keeping for `replay`."""
        return rows.select(self.history_columns())
