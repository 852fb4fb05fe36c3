"""The kernel of discrete windows: results of closed windows, and their corrections.

The mark of a shard is the instant up to which results have been emitted. A batch corrects results at or before the mark; a tick
moves the mark and emits the results in between, of the keys with due timers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import polars as pl

from umbel.changes.runs import Ints
from umbel.changes.versions import TIME
from umbel.state.collected import INSTANT
from umbel.state.tables import State, Table, TimedTable
from umbel.types.windows import SECOND
from umbel.windowing.grids import ALWAYS, LATER
from umbel.windowing.groups import KEY, Groups, numbered_keys, with_ids
from umbel.windowing.panes import Panes, Results
from umbel.windowing.points import HISTORY, Points, RequestedColumns, shown
from umbel.windowing.stored_windows import Entries, WholeGroups
from umbel.windowing.tiles import Moments
from umbel.windowing.tiling import ID, instant_of

MARK = pl.Series(KEY, [b"\x00"])


class Windows(Protocol):
    """Windows of one kind: their stored entries and their emitted results."""

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The columns of an entry."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of the group."""

    def combine(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return changes pre-aggregated into partial entries, before the exchange."""

    def is_partial(self, changes: pl.DataFrame) -> bool:
        """Return True if changes have been pre-aggregated by `combine`."""

    def for_windows(self, partial: pl.DataFrame) -> pl.DataFrame:
        """Return partial entries, with `_key_id`, in stored form."""

    def corrections(self, before: pl.DataFrame, after: pl.DataFrame, added: pl.DataFrame, mark: int) -> pl.DataFrame:
        """Return the changes to results at or before `mark`."""

    def emitted(self, entries: pl.DataFrame, mark: int, horizon: int) -> pl.DataFrame:
        """Return the changes of results after `mark` and at or before `horizon`."""

    def due(self, entries: pl.DataFrame, after: int, keys: int) -> Ints:
        """Return for each key its first emission instant after `after`; `LATER` if none."""

    def entries(self, state: State) -> Entries:
        """Return the stored entries of an operator that emits results."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one shard: entries, timers and the mark."""

    entries: Entries
    timers: TimedTable
    marks: Table

    @classmethod
    def of(cls, state: State, entries: Entries, groups: dict[str, pl.DataType]) -> Tables:
        """Return the tables of an operator.

        Args:
            state: of the operator in the shard.
            entries: of its windows.
            groups: the columns of a group.
        """
        timers = state.timed("timers", groups, expires=(TIME, 0))
        return cls(entries, timers, state.table("mark", {"mark": pl.Int64()}))

    @property
    def groups(self) -> WholeGroups:
        """The entries, of windows that are looked up."""
        assert isinstance(self.entries, WholeGroups)
        return self.entries

    def mark(self) -> int:
        """Return the instant up to which results have been emitted, µs."""
        found = self.marks.numbered(MARK)
        return int(found["mark"][0]) if len(found) else ALWAYS


def step(windows: Windows, tables: Tables, changes: pl.DataFrame, final: int | None) -> pl.DataFrame:
    """Add changes to the windows of their keys; return corrections of emitted results.

    Args:
        windows: the stored windows.
        tables: of the shard.
        changes: changes, or partial entries made by `combine`; not empty.
        final: the instant, in µs, up to which nothing changes any more; None when unknown.

    Returns:
        The group columns, `_time` (the instant of the result), the results, `_at` and `_weight`.
    """
    partial = changes if windows.is_partial(changes) else windows.combine(changes)
    numbered, keys = numbered_keys(partial, windows.keys)
    groups = numbered.unique(ID, keep="first", maintain_order=True).sort(ID).select(windows.keys)
    mark = tables.mark()
    added = windows.for_windows(numbered)
    merged = tables.entries.merged(keys, added)
    before, after = merged.before, merged.after
    emitted = windows.corrections(before, after, added, mark)
    _set_timers(tables, keys, groups, windows.due(before, mark, len(keys)), windows.due(after, mark, len(keys)))
    until = None if final is None or mark == ALWAYS else min(final, mark)
    tables.entries.write(keys, before, after, added, until)
    return _with_groups(emitted, groups)


def tick(windows: Windows, tables: Tables, horizon: int, final: int | None) -> pl.DataFrame:
    """Emit the results up to `horizon` not emitted yet.

    The columns are those of `step`.

    Args:
        windows: the stored windows.
        tables: of the shard.
        horizon: the last emission instant, µs; later results are not emitted yet.
        final: the instant, in µs, up to which nothing changes any more; None when unknown.
    """
    mark = tables.mark()
    if horizon <= mark:
        return pl.DataFrame()
    tables.marks.write(pl.DataFrame({KEY: MARK, "mark": [horizon]}))
    fired = tables.timers.until(horizon)
    if fired.is_empty():
        return pl.DataFrame()
    tables.timers.expire(instant_of(horizon))
    numbered, keys = numbered_keys(fired.drop(KEY, TIME), windows.keys)
    groups = numbered.unique(ID, keep="first", maintain_order=True).sort(ID).select(windows.keys)
    entries = tables.entries.due(keys, mark, horizon)
    emitted = windows.emitted(entries, mark, horizon)
    nothing = np.full(len(keys), LATER)
    _set_timers(tables, keys, groups, nothing, windows.due(entries, horizon, len(keys)))
    tables.entries.emitted(keys, entries, None if final is None else min(final, horizon))
    return _with_groups(emitted, groups)


def store(windows: Windows, tables: Tables, changes: pl.DataFrame, final: int | None) -> None:
    """Add changes to the windows of their keys, without emitting results.

    Results are queried by `lookup`.

    Args:
        windows: the stored windows.
        tables: of the shard.
        changes: changes, or partial entries made by `combine`; not empty.
        final: the instant, in µs, up to which nothing changes any more; None when unknown.
    """
    partial = changes if windows.is_partial(changes) else windows.combine(changes)
    numbered, keys = numbered_keys(partial, windows.keys)
    added = windows.for_windows(numbered)
    merged = tables.groups.merged(keys, added)
    tables.groups.write(keys, merged.before, merged.after, added, final)
    if final is not None:
        tables.marks.write(pl.DataFrame({KEY: MARK, "mark": [max(final, tables.mark())]}))


def _set_timers(tables: Tables, keys: pl.Series, groups: pl.DataFrame, before: Ints, after: Ints) -> None:
    """Set the timers of keys with a changed due instant; a superfluous timer is harmless."""
    moved = np.flatnonzero((before != after) & (after < LATER))
    if not len(moved):
        return
    due = pl.Series(TIME, after[moved]).cast(INSTANT)
    rows = pl.DataFrame([keys.gather(moved).alias(KEY), due, *groups[moved].get_columns()])
    tables.timers.write(rows)


def _with_groups(emitted: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    columns = [column.gather(emitted[ID]) for column in groups.iter_columns()]
    return pl.DataFrame([*columns, *emitted.drop(ID).get_columns()])


def lookup(panes: Panes, answered: RequestedColumns, tables: Tables, points: pl.DataFrame) -> pl.DataFrame:
    """Return the value of each point from the state.

    `_at_history` is set where the state no longer has the value at that instant.

    Args:
        panes: the stored panes.
        answered: the columns to compute.
        tables: of the shard.
        points: `_key` and `_time`.
    """
    keys = points[KEY].unique().sort()
    entries = tables.groups.all(keys)
    queries = with_ids(points, keys)
    at = Points.of(queries).at
    report = _answer(panes, answered, entries, queries, len(keys))
    return report.insert_column(1, pl.Series(HISTORY, at < tables.mark()))


def replay(panes: Panes, answered: RequestedColumns, changes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Return the value of each point from the changes consumed.

    Args:
        panes: the panes of the operator.
        answered: the columns to compute.
        changes: of the input.
        points: the key columns and `_time`.
    """
    keys = Groups(points, panes.keys)
    queries, partial = keys.numbered(points), keys.numbered(panes.combine(keys.known(changes)))
    return _answer(panes, answered, panes.fold(panes.for_windows(partial)), queries, len(keys))


def moments(panes: Panes, changes: pl.DataFrame) -> pl.DataFrame:
    """Return the end of every closed window with a result: key columns and `_time`.

    A window is closed if it ends at or before the latest event time, in whole seconds, of the changes.
    """
    keys = Groups(changes, panes.keys)
    partial = keys.numbered(panes.combine(changes))
    closed = changes.select(pl.col(panes.along or panes.timestamp).dt.epoch("us").max() // SECOND * SECOND).item()
    low, high = np.full(len(keys), ALWAYS), np.full(len(keys), closed)
    emitted = panes.results(panes.fold(panes.for_windows(partial)), low, high)
    return keys.named(Moments(emitted.ids, emitted.ends).frame)


def _answer(
    panes: Panes, answered: RequestedColumns, entries: pl.DataFrame, queries: pl.DataFrame, keys: int
) -> pl.DataFrame:
    points = Points.of(queries)
    values = replace(panes, aggregates=answered.aggregates).values(
        entries, Results(points.ids, points.at), for_emission=False
    )
    found = panes.due(entries, ALWAYS, keys)[points.ids] <= points.at
    changed = None
    if answered.has_timestamp:
        emitted = panes.results(entries, np.full(keys, ALWAYS), np.full(keys, points.at.max(initial=ALWAYS)))
        changed = Moments(emitted.ids, emitted.ends).before(points)
    columns = {name: values[name] for name in values.columns if name not in (ID, TIME)}
    return shown(answered.aggregates, columns, found, changed)
