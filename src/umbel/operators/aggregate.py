"""The aggregate operator: values of a group of rows, in windows of event time.

There is a class for each way results reach their readers: `ContinuousAggregation` and `QueriedAggregation` compute values on
lookup, `EmittedAggregation` emits rows. `aggregate` chooses. Their definition checks are in `aggregate_rules`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import polars as pl

from umbel.aggregates import Aggregate
from umbel.changes.versions import TIME
from umbel.operators.aggregate_rules import check_aggregate
from umbel.operators.operator import NEVER, Clock, Keyed
from umbel.state.runs.rules import TableSchema
from umbel.state.tables import State
from umbel.types import dtypes, epochs
from umbel.types.schema import CHANGE_COLUMNS, SEQ, Schema
from umbel.types.windows import SECOND, Continuous, Hopping, Session, Tumbling
from umbel.windowing import pane_kernel
from umbel.windowing.grids import LATER
from umbel.windowing.panes import BEGIN, END, Panes
from umbel.windowing.partials import Partials
from umbel.windowing.points import RequestedColumns
from umbel.windowing.sessions import Sessions
from umbel.windowing.stored_answer import StoredAnswer
from umbel.windowing.stored_windows import whole
from umbel.windowing.tile_reads import TileReader
from umbel.windowing.tile_writes import TileWriter
from umbel.windowing.tiles import TABLE, Tiles
from umbel.windowing.tiling import Tiling, micros

EAGER, FINAL = "eager", "final"
WINDOW = "window"
"""The key column with the window of a row, when windows are keys."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregation(Keyed):
    """Compute aggregates of the rows with equal `keys`.

    Args:
        keys: the columns of the group.
        aggregates: the aggregates; each has its result column in `into_field`.
        window: the window of the groupby; its windows become a key of the result.
        along: the datetime column used as time axis instead of the timestamp.
        emit: "eager": results and their corrections at once; "final": once, when they can change no more.
        tiling: the tile grid of continuous windows.

    >>> show(
    ...     lambda orders: orders.groupby("user", window=Tumbling("1h")).aggregate(total=Sum(of="amount"), emit="final"),
    ...     Order,
    ... )
    user  window       total  at
    ann   09:00-10:00  10     10:00
    bob   09:00-10:00  7      10:00
    """

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...] = ()
    window: Tumbling | Hopping | Session | None = None
    along: str | None = None
    emit: str = EAGER
    tiling: Tiling = field(default_factory=Tiling)

    keeps_values: ClassVar[bool] = True
    is_internal: ClassVar[bool] = True  # pipelines have groupby(…).aggregate(…)

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        check_aggregate(self, rows)
        keys = tuple((name, rows.dtypes[name]) for name in self.keys)
        if self.window is not None:
            keys = (*keys, (WINDOW, dtypes.Window()))
        values = tuple((each.into_field, each.result_type(rows)) for each in self.aggregates)
        return Schema(keys, values, rows.timestamp)

    @property
    def identity(self) -> str:
        return "Aggregate"

    @property
    def kind(self) -> str:
        return "aggregate"

    @property
    def windows(self) -> tuple[Continuous | Tumbling | Hopping | Session, ...]:
        """The distinct windows, in order of first occurrence."""
        found = (self.window or each.window for each in self.aggregates)
        return tuple(dict.fromkeys(each for each in (self.window, *found) if each is not None))

    @property
    def missing(self) -> Mapping[str, Any]:
        return {each.into_field: each.missing for each in self.aggregates if each.missing is not None}

    def exchange(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)

    @property
    def delay(self) -> int | None:
        if self.along is not None:
            return None
        if isinstance(self.window, Session):
            return self.window.gap_us + 2 * SECOND
        return self.lookback + SECOND

    @property
    def lookback(self) -> int:
        """The delay of the results of discrete windows, µs."""
        return max((each.lookback_us for each in self.windows if isinstance(each, Tumbling | Hopping)), default=0)

    @property
    def is_retractable(self) -> bool:
        """True if input rows may be retracted."""
        return not self.parents[0].inserts_only

    @property
    def is_keyed(self) -> bool:
        """True if input rows end at an instant of their own, beside their timestamp."""
        return self.parents[0].schema.is_keyed and self.along is None

    @cached_property
    def partials(self) -> Partials:
        """The partial states of its aggregates."""
        return Partials.of(self.aggregates, self.parents[0].schema, is_retractable=self.is_retractable)

    @cached_property
    def panes(self) -> Panes:
        """The panes of its discrete windows."""
        return Panes(
            keys=self.keys,
            timestamp=self.schema.timestamp,
            along=self.along,
            windows=tuple(each for each in self.windows if not isinstance(each, Session)),
            aggregates=self.aggregates,
            partials=self.partials,
            is_key=self.window is not None,
            is_keyed=self.is_keyed,
            is_retractable=self.is_retractable,
        )

    @cached_property
    def groups(self) -> dict[str, pl.DataType]:
        """The types of the group's columns."""
        return {name: self.parents[0].schema.dtypes[name].polars() for name in self.keys}

    @property
    @abstractmethod
    def stored(self) -> Tiles | Panes | Sessions:
        """The layout of its state."""

    def partial(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self.stored.combine(rows)

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        if changes[0].is_empty():
            return self.schema.empty()
        return self.merge(changes[0], state, clock)

    @abstractmethod
    def merge(self, changes: pl.DataFrame, state: State, clock: Clock) -> pl.DataFrame:
        """Merge a non-empty batch into the state of one shard; return the changes it causes."""

    def _final(self, clock: Clock) -> int | None:
        """Return the instant up to which results are final, µs.

        None if nothing bounds the age of rows.
        """
        return None if clock.watermark is None or self.along is not None else micros(clock.watermark) - 1


@dataclass(frozen=True, eq=False, kw_only=True)
class LookedUpAggregation(Aggregation):
    """An aggregation whose values depend on the queried instant; it emits nothing."""

    @property
    def is_terminal(self) -> bool:
        return True

    def complete_since(self, inputs: tuple[float, ...]) -> float:
        if self.along is not None or max(inputs) == NEVER:
            return NEVER
        return max(inputs) + max((self._behind(each) for each in self.windows), default=NEVER)

    def _behind(self, window: Continuous | Tumbling | Hopping | Session) -> float:
        """Return the distance from an instant to the earliest row it depends on, µs."""
        if isinstance(window, Session):
            return NEVER
        if isinstance(window, Continuous):
            rows = window.duration_us or (0 if self.is_keyed else NEVER)  # a keyed input has all rows that are left
            return rows + self.tiling.grain(window) + SECOND
        return (
            NEVER if window.duration_us is None else window.duration_us + window.stride_us + window.lookback_us + SECOND
        )

    @cached_property
    def answered(self) -> RequestedColumns:
        """The columns of its lookups: all, unless `answering` has left some out."""
        return RequestedColumns(self.aggregates)

    @abstractmethod
    def stored_answer(self, state: State, points: pl.DataFrame) -> StoredAnswer:
        """Return the values from the state, to be completed from a part of the history.

        Args:
            state: of this operator, in the shard of the points' keys.
            points: `_key` (the encoded group key) and `_time`.
        """

    @abstractmethod
    def replay(self, changes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
        """Return the values from the changes consumed: those `stored_answer` returned at that instant.

        Args:
            changes: of the input, at least those of the points' groups; the columns in `history` suffice.
            points: the group's columns and `_time`.

        Returns:
            One row for each point: `_at_found`, `_at_changed` and the aggregates.
        """

    @abstractmethod
    def moments(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Return the instants of changes of the values.

        The columns are the group's and `_time`.
        """

    @property
    def instant(self) -> str:
        """The input column with the instant of a row, in its windows."""
        return self.along or self.parents[0].schema.timestamp

    def history_columns(self) -> list[str]:
        """Return the input columns its results depend on."""
        rows = self.parents[0].schema
        read = [*self.keys, *(each.column for each in self.aggregates if each.column), self.along, rows.timestamp]
        return list(dict.fromkeys([*(name for name in read if name is not None), *CHANGE_COLUMNS]))

    def history(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the columns of changes that `replay` needs."""
        return rows.select(self.history_columns())


@dataclass(frozen=True, eq=False, kw_only=True)
class ContinuousAggregation(LookedUpAggregation):
    """Continuous windows: stored as tiles, computed on lookup."""

    @cached_property
    def tiles(self) -> Tiles:
        """The tiles of its windows."""
        rows = self.parents[0].schema
        return Tiles(
            keys=self.keys,
            timestamp=rows.timestamp,
            anchor=self.along or rows.timestamp,
            windows=tuple(each for each in self.windows if isinstance(each, Continuous)),
            aggregates=self.aggregates,
            partials=self.partials,
            tiling=self.tiling,
            is_keyed=self.is_keyed,
            is_retractable=self.is_retractable,
            is_bounded=self.along is None,
        )

    @property
    def stored(self) -> Tiles:
        return self.tiles

    @property
    def folded(self) -> Mapping[str, TableSchema]:
        return {TABLE: self.tiles.schema} if self.tiles.is_appended else {}

    def columns_read(self, needed: AbstractSet[str]) -> AbstractSet[str]:
        return frozenset(self.history_columns())

    def merge(self, changes: pl.DataFrame, state: State, clock: Clock) -> pl.DataFrame:
        TileWriter(self.tiles).step(changes, state, clock.watermark)
        return self.schema.empty()

    def stored_answer(self, state: State, points: pl.DataFrame) -> StoredAnswer:
        return TileReader(self.tiles, self.answered).lookup(state, points)

    def replay(self, changes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
        return TileReader(self.tiles, self.answered).replay(changes, points)

    def moments(self, changes: pl.DataFrame) -> pl.DataFrame:
        return TileReader(self.tiles, self.answered).moments(changes)


@dataclass(frozen=True, eq=False, kw_only=True)
class QueriedAggregation(LookedUpAggregation):
    """Discrete windows whose values depend on the queried instant: stored as panes, computed on lookup."""

    @property
    def stored(self) -> Panes:
        return self.panes

    def merge(self, changes: pl.DataFrame, state: State, clock: Clock) -> pl.DataFrame:
        pane_kernel.store(self.panes, self._tables(state), changes, self._final(clock))
        return self.schema.empty()

    def stored_answer(self, state: State, points: pl.DataFrame) -> StoredAnswer:
        return StoredAnswer(pane_kernel.lookup(self.panes, self.answered, self._tables(state), points))

    def replay(self, changes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
        return pane_kernel.replay(self.panes, self.answered, changes, points)

    def moments(self, changes: pl.DataFrame) -> pl.DataFrame:
        return pane_kernel.moments(self.panes, changes)

    def _tables(self, state: State) -> pane_kernel.Tables:
        return pane_kernel.Tables.of(state, whole(state, self.panes, self.panes.columns), self.groups)


@dataclass(frozen=True, eq=False, kw_only=True)
class EmittedAggregation(Aggregation):
    """Windows that emit their results as rows: when they close, or once final."""

    @property
    def is_timed(self) -> bool:
        return True

    @property
    def is_final(self) -> bool:
        return self.emit == FINAL

    @property
    def stored(self) -> Panes | Sessions:
        return self._sessions(self.window) if isinstance(self.window, Session) else self.panes

    def _sessions(self, window: Session) -> Sessions:
        return Sessions(
            keys=self.keys,
            timestamp=self.schema.timestamp,
            window=window,
            aggregates=self.aggregates,
            partials=self.partials,
            is_retractable=self.is_retractable,
            is_final=self.is_final,
        )

    def merge(self, changes: pl.DataFrame, state: State, clock: Clock) -> pl.DataFrame:
        return self._emitted(pane_kernel.step(self.stored, self._tables(state), changes, self._final(clock)))

    def tick(self, state: State, clock: Clock) -> pl.DataFrame:
        horizon = self._horizon(clock if self.along is None else replace(clock, watermark=None))
        if horizon is None:
            return self.schema.empty()
        return self._emitted(pane_kernel.tick(self.stored, self._tables(state), horizon, self._final(clock)))

    def _tables(self, state: State) -> pane_kernel.Tables:
        return pane_kernel.Tables.of(state, self.stored.entries(state), self.groups)

    def _horizon(self, clock: Clock) -> int | None:
        """Return the instant, in µs, up to which results are emitted."""
        waits = self.is_final and (clock.waits or clock.watermark is not None)
        late = clock.watermark if waits else clock.stream_time
        if late is None:
            return None
        moves = any(isinstance(each, Continuous) for each in self.windows)  # results come out at any instant
        if clock.watermark is None and (moves or isinstance(self.window, Session)):
            return epochs.LAST if moves else LATER  # all is emitted and corrected
        if moves:
            return micros(late) - 1  # rows at the watermark may still arrive
        return micros(late) // SECOND * SECOND - self.lookback

    def _emitted(self, emitted: pl.DataFrame) -> pl.DataFrame:
        """Return results as changes of the schema."""
        if emitted.is_empty():
            return self.schema.empty()
        span = pl.struct(pl.col(BEGIN).alias("begin"), pl.col(END).alias("end")).alias(WINDOW)
        timed = [pl.col(TIME).alias(self.schema.timestamp), pl.lit(0, pl.Int64).alias(SEQ)]
        columns = timed if BEGIN not in emitted.columns else [span, *timed]
        return emitted.with_columns(columns).select(list(self.schema.changes()))


def aggregate(*, aggregates: tuple[Aggregate, ...], emit: str = EAGER, **parameters: Any) -> Aggregation:
    """Return the aggregation whose class fits its windows and aggregates.

    Args:
        aggregates: the aggregates.
        emit: "eager" or "final".
        parameters: the other fields of `Aggregation`, its parents and pipeline.
    """
    is_continuous = parameters.get("window") is None and any(isinstance(each.window, Continuous) for each in aggregates)
    kind: type[Aggregation] = EmittedAggregation
    if emit != FINAL and is_continuous:
        kind = ContinuousAggregation
    elif emit != FINAL and any(each.needs_instant for each in aggregates):
        kind = QueriedAggregation
    return kind(aggregates=aggregates, emit=emit, **parameters)
