"""Aggregate: values computed from the rows of a group, in windows of event time.

Class `Aggregate`; its rule is in `aggregate_rules`, its kernels are `tiles` (continuous windows) and `windows` (discrete ones).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from umbel.aggregates import Aggregate as Algebra
from umbel.operators import tile_kernel, window_kernel
from umbel.operators.aggregate_rules import check_aggregate
from umbel.operators.operator import Clock, Keyed
from umbel.operators.partials import Partials
from umbel.operators.sessions import Sessions
from umbel.operators.tables import State
from umbel.operators.tile_answers import answer_from_changes
from umbel.operators.tiles import Tiles
from umbel.operators.tiling import Tiling, micros
from umbel.operators.timeline import TIME
from umbel.operators.windows import BEGIN, END, Panes
from umbel.types import dtypes
from umbel.types.schema import CHANGE_COLUMNS, SEQ, Schema
from umbel.types.windows import SECOND, Continuous, Hopping, Session, Tumbling

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
    tiling: Tiling = field(default_factory=Tiling)

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
    def is_timed(self) -> bool:
        return not self.is_continuous

    @property
    def inserts_only(self) -> bool:
        return False

    def exchange(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)

    @property
    def is_continuous(self) -> bool:
        """Whether it is kept in tiles and answers when asked; else it emits results."""
        return self.emit == EAGER and any(isinstance(each, Continuous) for each in self.windows)

    @cached_property
    def partials(self) -> Partials:
        """The states it keeps."""
        parent = self.parents[0]
        return Partials.of(self.aggregates, parent.schema, is_retractable=not parent.inserts_only)

    @cached_property
    def tiles(self) -> Tiles:
        """How its continuous windows are kept."""
        rows = self.parents[0].schema
        return Tiles(
            keys=self.keys,
            timestamp=rows.timestamp,
            anchor=self.along or rows.timestamp,
            windows=tuple(each for each in self.windows if isinstance(each, Continuous)),
            aggregates=self.aggregates,
            partials=self.partials,
            tiling=self.tiling,
            is_keyed=rows.is_keyed,
            is_retractable=not self.parents[0].inserts_only,
        )

    @cached_property
    def discrete(self) -> Panes | Sessions:
        """How its discrete windows are kept."""
        rows, is_retractable = self.parents[0].schema, not self.parents[0].inserts_only
        if isinstance(self.window, Session):
            return Sessions(
                keys=self.keys,
                timestamp=rows.timestamp,
                window=self.window,
                aggregates=self.aggregates,
                partials=self.partials,
                is_retractable=is_retractable,
                is_final=self.emit == FINAL,
            )
        return Panes(
            keys=self.keys,
            timestamp=rows.timestamp,
            along=self.along,
            windows=tuple(each for each in self.windows if not isinstance(each, Session)),
            aggregates=self.aggregates,
            partials=self.partials,
            is_key=self.window is not None,
            is_keyed=rows.is_keyed and self.along is None,
            is_retractable=is_retractable,
        )

    def partial(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self.tiles.combine(rows) if self.is_continuous else self.discrete.combine(rows)

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        if changes[0].is_empty():
            return self.schema.empty()
        if self.is_continuous:
            tile_kernel.step(self.tiles, changes[0], state, clock.watermark)
            return self.schema.empty()
        return self._emitted(window_kernel.step(self.discrete, self._tables(state), changes[0], self._final(clock)))

    def tick(self, state: State, clock: Clock) -> pl.DataFrame:
        horizon = self._horizon(clock)
        if self.is_continuous or horizon is None:
            return self.schema.empty()
        return self._emitted(window_kernel.tick(self.discrete, self._tables(state), horizon, self._final(clock)))

    def _tables(self, state: State) -> window_kernel.Tables:
        types = self.parents[0].schema.dtypes
        return window_kernel.Tables.of(state, self.discrete, {name: types[name].polars() for name in self.keys})

    def _horizon(self, clock: Clock) -> int | None:
        """Return the instant, in µs, up to which results are told."""
        late = clock.watermark if self.emit == FINAL and clock.watermark is not None else clock.frontier
        if late is None:
            return None
        lookback = max((each.lookback_us for each in self.windows if isinstance(each, Tumbling | Hopping)), default=0)
        instant = micros(late)
        is_sliding = any(isinstance(each, Continuous) for each in self.windows)
        return instant - (clock.watermark is not None) if is_sliding else instant // SECOND * SECOND - lookback

    def _final(self, clock: Clock) -> int | None:
        """Return the instant, in µs, up to which results do not change any more."""
        return None if clock.watermark is None else micros(clock.watermark) - 1

    def _emitted(self, told: pl.DataFrame) -> pl.DataFrame:
        """Return results as changes of this operator's schema."""
        if told.is_empty():
            return self.schema.empty()
        span = [pl.struct(pl.col(BEGIN).alias("begin"), pl.col(END).alias("end")).alias(WINDOW)] if self.window else []
        timed = told.with_columns(*span, pl.col(TIME).alias(self.schema.timestamp), pl.lit(0, pl.Int64).alias(SEQ))
        return timed.select(list(self.schema.changes()))

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
