"""The three ways an aggregation runs: tiles that are asked, windows that tell their results, windows that are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import polars as pl

from umbel.errors import NotSupported
from umbel.operators import tile_answers, tile_kernel, window_answers, window_kernel
from umbel.operators.operator import Clock
from umbel.operators.sessions import Sessions
from umbel.operators.tables import State
from umbel.operators.tiles import Tiles
from umbel.operators.tiling import micros
from umbel.operators.timeline import TIME
from umbel.operators.window_grids import LATER
from umbel.operators.windows import BEGIN, END, Panes
from umbel.types.schema import SEQ, Schema
from umbel.types.windows import SECOND

WINDOW = "window"
"""The key column that holds the window of a row, when windows are keys."""


class Kernel(Protocol):
    """How an aggregation runs."""

    def combine(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return what changes are combined to before the exchange."""

    def step(self, changes: pl.DataFrame, state: State, clock: Clock) -> pl.DataFrame:
        """Return the changes a batch, not empty, causes in one shard."""

    def tick(self, state: State, clock: Clock) -> pl.DataFrame:
        """Return the changes the progress of time causes in one shard."""

    def lookup(self, state: State, points: pl.DataFrame) -> pl.DataFrame:
        """Return the values of points `[_key, _time]` from the state."""

    def replay(self, changes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
        """Return the values of points, key columns and `_time`, from the changes consumed."""

    def moments(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Return the points, key columns and `_time`, at which changes consumed make values change."""


@dataclass(frozen=True)
class Continuously:
    """Continuous windows: kept in tiles, nothing is told, everything is asked for.

    Args:
        tiles: what is kept.
        schema: of the result.
    """

    tiles: Tiles
    schema: Schema

    def combine(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self.tiles.combine(rows)

    def step(self, changes: pl.DataFrame, state: State, clock: Clock) -> pl.DataFrame:
        tile_kernel.step(self.tiles, changes, state, clock.watermark)
        return self.schema.empty()

    def tick(self, state: State, clock: Clock) -> pl.DataFrame:
        return self.schema.empty()

    def lookup(self, state: State, points: pl.DataFrame) -> pl.DataFrame:
        return tile_kernel.lookup(self.tiles, state, points)

    def replay(self, changes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
        return tile_answers.answer_from_changes(self.tiles, changes, points)

    def moments(self, changes: pl.DataFrame) -> pl.DataFrame:
        return tile_answers.moments(self.tiles, changes)


@dataclass(frozen=True)
class Telling:
    """Windows that tell their results when they close, or once they are final.

    Args:
        windows: what is kept.
        schema: of the result.
        groups: the types of the group's columns.
        is_final: whether results are told once, when nothing changes them any more.
        lookback: how much later results are told, µs.
        is_sliding: whether results come out at any instant, not at ends of windows alone.
    """

    windows: Panes | Sessions
    schema: Schema
    groups: dict[str, pl.DataType]
    is_final: bool
    lookback: int
    is_sliding: bool

    def combine(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self.windows.combine(rows)

    def step(self, changes: pl.DataFrame, state: State, clock: Clock) -> pl.DataFrame:
        return self._emitted(window_kernel.step(self.windows, self._tables(state), changes, _final(clock)))

    def tick(self, state: State, clock: Clock) -> pl.DataFrame:
        horizon = self._horizon(clock)
        if horizon is None:
            return self.schema.empty()
        return self._emitted(window_kernel.tick(self.windows, self._tables(state), horizon, _final(clock)))

    def lookup(self, state: State, points: pl.DataFrame) -> pl.DataFrame:
        raise NotSupported("results of this aggregation are told, so they are looked up in the index of its dataset")

    def replay(self, changes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
        raise NotSupported("results of this aggregation are told, so they are looked up in the index of its dataset")

    def moments(self, changes: pl.DataFrame) -> pl.DataFrame:
        raise NotSupported("results of this aggregation are told, so its dataset has them as rows")

    def _tables(self, state: State) -> window_kernel.Tables:
        return window_kernel.Tables.of(state, self.windows, self.groups)

    def _horizon(self, clock: Clock) -> int | None:
        """Return the instant, in µs, up to which results are told."""
        waits = self.is_final and (clock.waits or clock.watermark is not None)
        late = clock.watermark if waits else clock.frontier
        if late is None:
            return None
        if self.is_sliding:  # rows at the watermark itself may still come; without one all is told, and corrected
            return LATER if clock.watermark is None else micros(late) - 1
        return micros(late) // SECOND * SECOND - self.lookback

    def _emitted(self, told: pl.DataFrame) -> pl.DataFrame:
        """Return results as changes of the schema."""
        if told.is_empty():
            return self.schema.empty()
        span = pl.struct(pl.col(BEGIN).alias("begin"), pl.col(END).alias("end")).alias(WINDOW)
        timed = [pl.col(TIME).alias(self.schema.timestamp), pl.lit(0, pl.Int64).alias(SEQ)]
        columns = timed if BEGIN not in told.columns else [span, *timed]
        return told.with_columns(columns).select(list(self.schema.changes()))


@dataclass(frozen=True)
class Asked:
    """Discrete windows whose value depends on the instant it is asked for.

    Args:
        panes: what is kept.
        schema: of the result.
        groups: the types of the group's columns.
    """

    panes: Panes
    schema: Schema
    groups: dict[str, pl.DataType]

    def combine(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self.panes.combine(rows)

    def step(self, changes: pl.DataFrame, state: State, clock: Clock) -> pl.DataFrame:
        window_kernel.keep(self.panes, self._tables(state), changes, _final(clock))
        return self.schema.empty()

    def tick(self, state: State, clock: Clock) -> pl.DataFrame:
        return self.schema.empty()

    def lookup(self, state: State, points: pl.DataFrame) -> pl.DataFrame:
        return window_answers.lookup(self.panes, self._tables(state), points)

    def replay(self, changes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
        return window_answers.replay(self.panes, changes, points)

    def moments(self, changes: pl.DataFrame) -> pl.DataFrame:
        return window_answers.moments(self.panes, changes)

    def _tables(self, state: State) -> window_kernel.Tables:
        return window_kernel.Tables.of(state, self.panes, self.groups)


def _final(clock: Clock) -> int | None:
    """Return the instant, in µs, up to which results do not change any more."""
    return None if clock.watermark is None else micros(clock.watermark) - 1
