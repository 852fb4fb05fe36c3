"""Aggregate: values computed from the rows of a group, in windows of event time.

Class `Aggregate`; its rule is in `aggregate_rules`, how it runs in `aggregate_kernels`: continuous windows by `tiles`, discrete
ones by `windows` and `sessions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import polars as pl

from umbel.aggregates import Aggregate as Algebra
from umbel.operators.aggregate_kernels import WINDOW, Asked, Continuously, Kernel, Telling
from umbel.operators.aggregate_rules import check_aggregate
from umbel.operators.operator import Clock, Keyed
from umbel.operators.partials import Partials
from umbel.operators.sessions import Sessions
from umbel.operators.tables import State
from umbel.operators.tiles import Tiles
from umbel.operators.tiling import Tiling
from umbel.operators.windows import Panes
from umbel.types import dtypes
from umbel.types.schema import CHANGE_COLUMNS, Schema
from umbel.types.windows import SECOND, Continuous, Hopping, Session, Tumbling

EAGER, FINAL = "eager", "final"


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
        return not self.is_terminal

    @property
    def is_final(self) -> bool:
        return self.emit == FINAL

    @property
    def delay(self) -> int | None:
        if self.along is not None:
            return None
        if isinstance(self.window, Session):
            return self.window.gap_us + 2 * SECOND
        return self._lookback + SECOND

    @property
    def _lookback(self) -> int:
        return max((each.lookback_us for each in self.windows if isinstance(each, Tumbling | Hopping)), default=0)

    @property
    def inserts_only(self) -> bool:
        return False

    @property
    def missing(self) -> Mapping[str, Any]:
        return {each.into_field: each.missing for each in self.aggregates if each.missing is not None}

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
            is_keyed=rows.is_keyed and self.along is None,
            is_retractable=not self.parents[0].inserts_only,
            is_bounded=self.along is None,
        )

    def _sessions(self, window: Session) -> Sessions:
        return Sessions(
            keys=self.keys,
            timestamp=self.schema.timestamp,
            window=window,
            aggregates=self.aggregates,
            partials=self.partials,
            is_retractable=not self.parents[0].inserts_only,
            is_final=self.is_final,
        )

    @cached_property
    def _panes(self) -> Panes:
        return Panes(
            keys=self.keys,
            timestamp=self.schema.timestamp,
            along=self.along,
            windows=tuple(each for each in self.windows if not isinstance(each, Session)),
            aggregates=self.aggregates,
            partials=self.partials,
            is_key=self.window is not None,
            is_keyed=self.parents[0].schema.is_keyed and self.along is None,
            is_retractable=not self.parents[0].inserts_only,
        )

    @cached_property
    def kernel(self) -> Kernel:
        """How it runs."""
        types = self.parents[0].schema.dtypes
        groups = {name: types[name].polars() for name in self.keys}
        if self.is_continuous:
            return Continuously(self.tiles, self.schema)
        if self.is_terminal:
            return Asked(self._panes, self.schema, groups)
        is_sliding = any(isinstance(each, Continuous) for each in self.windows)
        windows = self._sessions(self.window) if isinstance(self.window, Session) else self._panes
        return Telling(windows, self.schema, groups, self.is_final, self._lookback, is_sliding)

    def partial(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self.kernel.combine(rows)

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        if changes[0].is_empty():
            return self.schema.empty()
        if self.along is not None and not self.is_continuous:  # the watermark does not tell how old such rows may be
            clock = replace(clock, watermark=None)
        return self.kernel.step(changes[0], state, clock)

    def tick(self, state: State, clock: Clock) -> pl.DataFrame:
        return self.kernel.tick(state, clock if self.along is None else replace(clock, watermark=None))

    def lookup(self, state: State, points: pl.DataFrame) -> pl.DataFrame:
        """Return the values of a terminal aggregate from the state.

        Args:
            state: of this operator, in the shard of the points' keys.
            points: `_key` (the encoded group key) and `_time`.

        Returns:
            One row for each point: `_found`, `_history`, `_changed` (the instant the values became these) and the aggregates.
            Where `_history` is set the state does not know, and `replay` has to be asked.
        """
        return self.kernel.lookup(state, points)

    def replay(self, changes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
        """Return the values of a terminal aggregate from the changes it has consumed: what `lookup` returned at that instant.

        Args:
            changes: of the input, of the points' groups at least; `history` is enough of each.
            points: the group's columns and `_time`.

        Returns:
            One row for each point: `_found`, `_changed` and the aggregates.
        """
        return self.kernel.replay(changes, points)

    def moments(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Return the points at which the values of a terminal aggregate change: the group's columns and `_time`."""
        return self.kernel.moments(changes)

    def history_columns(self) -> list[str]:
        """Return the columns of the input its results depend on."""
        rows = self.parents[0].schema
        read = [*self.keys, *(each.column for each in self.aggregates if each.column), self.along, rows.timestamp]
        return list(dict.fromkeys([*(name for name in read if name is not None), *CHANGE_COLUMNS]))

    def history(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return what of changes is worth keeping for `replay`."""
        return rows.select(self.history_columns())
