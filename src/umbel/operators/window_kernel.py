"""The kernel of discrete windows: results of windows that have closed, and their corrections.

The mark of a shard is the instant up to which results have been told. A batch corrects results at or before the mark; a tick
moves the mark and tells the results in between, of the keys whose timers are due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from umbel.operators.runs import Ints
from umbel.operators.tables import State, Table
from umbel.operators.tile_kernel import KEY, numbered_keys
from umbel.operators.tiling import ID
from umbel.operators.window_grids import ALWAYS, LATER
from umbel.state.keys import encode_time

INSTANT = pl.Datetime("us", "UTC")
MARK = pl.Series(KEY, [b"\x00"])
DUE = "_time_due"


class Windows(Protocol):
    """Windows of one kind: what is kept of them, and what they tell."""

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The columns of an entry."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the group."""

    def combine(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return what changes are combined to before the exchange."""

    def is_partial(self, changes: pl.DataFrame) -> bool:
        """Return whether changes have been combined."""

    def spread(self, partial: pl.DataFrame) -> pl.DataFrame:
        """Return combined changes, with `_key_id`, in the form that is kept."""

    def fold(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return entries, old and new of some keys, merged and in order."""

    def corrections(self, before: pl.DataFrame, after: pl.DataFrame, added: pl.DataFrame, mark: int) -> pl.DataFrame:
        """Return the changes to results at or before `mark`."""

    def told(self, entries: pl.DataFrame, mark: int, horizon: int) -> pl.DataFrame:
        """Return the changes that results after `mark`, not after `horizon`, make."""

    def due(self, entries: pl.DataFrame, after: int, keys: int) -> Ints:
        """Return for each key the first instant after another at which there is something to tell."""

    def forget(self, entries: pl.DataFrame, final: int, keys: int) -> pl.DataFrame:
        """Return entries without what nothing needs once everything up to `final` is."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one shard."""

    entries: Table
    timers: Table
    marks: Table

    @classmethod
    def of(cls, state: State, windows: Windows, groups: dict[str, pl.DataType]) -> Tables:
        """Return the tables of an operator."""
        timers = {DUE: pl.Int64(), **groups}
        return cls(
            state.table("windows", windows.columns),
            state.table("timers", timers),
            state.table("mark", {"mark": pl.Int64()}),
        )

    def mark(self) -> int:
        """Return the instant up to which results have been told."""
        found = self.marks.get(MARK)
        return int(found["mark"][0]) if len(found) else ALWAYS


def step(windows: Windows, tables: Tables, changes: pl.DataFrame, final: int | None) -> pl.DataFrame:
    """Add changes to the windows of their keys; return the corrections of what has been told.

    Args:
        windows: what is kept.
        tables: of the shard.
        changes: changes, or combined ones; not empty.
        final: the instant up to which nothing changes any more; None when not known.

    Returns:
        The group columns, `_time` (the instant of the result), the results, `_at` and `_weight`.
    """
    partial = changes if windows.is_partial(changes) else windows.combine(changes)
    numbered, keys = numbered_keys(partial, windows.keys)
    groups = numbered.unique(ID, keep="first", maintain_order=True).sort(ID).select(windows.keys)
    mark = tables.mark()
    before = tables.entries.numbered(keys)
    added = windows.spread(numbered)
    after = windows.fold(pl.concat([before, added]))
    told = windows.corrections(before, after, added, mark)
    _set_timers(tables, keys, groups, windows.due(before, mark, len(keys)), windows.due(after, mark, len(keys)))
    _keep(windows, tables, keys, after, None if final is None or mark == ALWAYS else min(final, mark))
    return _with_groups(told, groups)


def tick(windows: Windows, tables: Tables, horizon: int, final: int | None) -> pl.DataFrame:
    """Tell the results up to `horizon` that have not been told; the same columns as of `step`.

    Args:
        windows: what is kept.
        tables: of the shard.
        horizon: results after it are not told yet.
        final: the instant up to which nothing changes any more; None when not known.
    """
    mark = tables.mark()
    if horizon <= mark:
        return pl.DataFrame()
    tables.marks.replace(MARK, pl.DataFrame({KEY: MARK, "mark": [horizon]}))
    fired = tables.timers.between(None, _timer_prefix(horizon + 1))
    if fired.is_empty():
        return pl.DataFrame()
    tables.timers.replace(fired[KEY], fired.clear())
    numbered, keys = numbered_keys(fired.drop(KEY), windows.keys)
    groups = numbered.unique(ID, keep="first", maintain_order=True).sort(ID).select(windows.keys)
    entries = tables.entries.numbered(keys)
    told = windows.told(entries, mark, horizon)
    nothing = np.full(len(keys), LATER)
    _set_timers(tables, keys, groups, nothing, windows.due(entries, horizon, len(keys)))
    _keep(windows, tables, keys, entries, None if final is None else min(final, horizon))
    return _with_groups(told, groups)


def keep(windows: Windows, tables: Tables, changes: pl.DataFrame, final: int | None) -> None:
    """Add changes to the windows of their keys, without telling anything: results are asked for.

    Args:
        windows: what is kept.
        tables: of the shard.
        changes: changes, or combined ones; not empty.
        final: the instant up to which nothing changes any more; None when not known.
    """
    partial = changes if windows.is_partial(changes) else windows.combine(changes)
    numbered, keys = numbered_keys(partial, windows.keys)
    before = tables.entries.numbered(keys)
    _keep(windows, tables, keys, windows.fold(pl.concat([before, windows.spread(numbered)])), final)
    if final is not None:
        tables.marks.replace(MARK, pl.DataFrame({KEY: MARK, "mark": [max(final, tables.mark())]}))


def _keep(windows: Windows, tables: Tables, keys: pl.Series, entries: pl.DataFrame, final: int | None) -> None:
    kept = entries if final is None else windows.forget(entries, final, len(keys))
    tables.entries.renumber(keys, kept)


def _set_timers(tables: Tables, keys: pl.Series, groups: pl.DataFrame, before: Ints, after: Ints) -> None:
    """Set the timers of keys that are due at another instant than before; a timer too many does no harm."""
    moved = np.flatnonzero((before != after) & (after < LATER))
    if not len(moved):
        return
    due = pl.Series(DUE, after[moved])
    prefix = encode_time(due.cast(INSTANT)).cast(pl.Binary)
    addresses = _joined(prefix, keys.gather(moved))
    rows = pl.DataFrame([addresses, due, *groups[moved].get_columns()])
    tables.timers.replace(addresses, rows)


def _joined(prefix: pl.Series, keys: pl.Series) -> pl.Series:
    return pl.Series(KEY, [a + b for a, b in zip(prefix.to_list(), keys.to_list(), strict=True)], pl.Binary)


def _timer_prefix(instant: int) -> bytes:
    return bytes(encode_time(pl.Series([instant]).cast(INSTANT))[0])


def _with_groups(told: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    columns = [column.gather(told[ID]) for column in groups.iter_columns()]
    return pl.DataFrame([*columns, *told.drop(ID).get_columns()])
