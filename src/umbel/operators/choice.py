"""The base operator of First and Latest, and the kernels they share with Dedup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import numpy as np
import polars as pl

from umbel.changes.versions import ALIVE, KEY, MICROSECOND, TIME, changelog, consolidate, difference, spans
from umbel.errors import InvalidValue
from umbel.operators.columns import check_keyless, check_known
from umbel.operators.operator import Keyed
from umbel.state.runs.addresses import hash_keys
from umbel.state.runs.sorting import order_of_numbers
from umbel.state.tables import NUMBER, Table, TimedTable
from umbel.types.schema import AT, SEQ, WEIGHT, Schema

Chooser = Callable[[pl.DataFrame], pl.DataFrame]


def latest(rows: pl.DataFrame, retained: TimedTable) -> pl.DataFrame:
    """Return the changes of an upsert stream.

    Every row becomes the current row of its key from its timestamp on.

    Args:
        rows: changes with `_key` and `_time` (the row's timestamp).
        retained: the rows so far, by key and time; written.
    """
    before, after = _around(rows, retained)
    return difference(_upserts(before), _upserts(after)).drop(KEY)


def _upserts(rows: pl.DataFrame) -> pl.DataFrame:
    chosen = last_of_instant(rows).drop("_at", WEIGHT)
    return changelog(chosen.with_columns(pl.lit(value=True).alias(ALIVE)))


def nearby(rows: pl.DataFrame, retained: TimedTable, choose: Chooser) -> pl.DataFrame:
    """Return the changes of a choice that depends only on adjacent rows in time."""
    before, after = _around(rows, retained)
    return difference(choose(before), choose(after)).drop(KEY, TIME)


def among_all(rows: pl.DataFrame, retained: Table, choose: Chooser, *, forget: bool) -> pl.DataFrame:
    """Return the changes of a choice among all rows of a key.

    Args:
        rows: changes with `_key`.
        retained: the rows so far, by key; written.
        choose: maps all rows of some keys to the chosen ones.
        forget: True if the rows not chosen can be dropped, because none is ever retracted.
    """
    if forget:
        return _among_inserted(rows, retained, choose)
    keys = rows[KEY].unique()
    before = retained.get(keys)
    after = consolidate(pl.concat([before, rows.select(before.columns)]))
    retained.replace(keys, after)
    return difference(choose(before), choose(after)).drop(KEY)


def _among_inserted(rows: pl.DataFrame, retained: Table, choose: Chooser) -> pl.DataFrame:
    """Return the changes of a choice among rows that are only inserted.

    The chosen ones are retained. Only keys with several rows, in the batch or before it, need a choice.
    """
    fresh = _chosen_in_batch(_present(rows), choose)
    before = retained.found(fresh[KEY])
    columns = before.drop(NUMBER).columns
    fresh = fresh.select(columns)
    if before.is_empty():
        retained.write(fresh)
        return fresh.drop(KEY)
    is_known = np.zeros(fresh.height, np.bool_)
    is_known[before[NUMBER].to_numpy()] = True
    stored = before.select(columns)
    best = choose(pl.concat([stored, fresh.filter(is_known)]))
    changed, begun = difference(stored, best), fresh.filter(~is_known)
    retained.write(pl.concat([changed.filter(pl.col(WEIGHT) > 0), begun]))
    return pl.concat([changed, begun]).drop(KEY)


def _chosen_in_batch(rows: pl.DataFrame, choose: Chooser) -> pl.DataFrame:
    """Return the chosen rows of a batch.

    Only keys that share a hash with another row's are compared. The others remain in their order, which is
    about that of time.
    """
    hashes = hash_keys(rows[KEY])
    ranks = order_of_numbers(hashes)
    repeats = hashes[ranks[1:]] == hashes[ranks[:-1]]
    if not repeats.any():
        return rows
    several = np.zeros(len(ranks), np.bool_)
    several[ranks[1:][repeats]] = True
    several[ranks[:-1][repeats]] = True
    return pl.concat([rows.filter(~several), choose(rows.filter(several))])


def earliest(timestamp: str) -> Chooser:
    """Choose the row with the smallest timestamp; of equal ones the first to arrive."""
    return lambda rows: _ordered(rows, timestamp).unique(KEY, keep="first", maintain_order=True)


def newest(timestamp: str) -> Chooser:
    """Choose the row with the largest timestamp; of equal ones the last to arrive."""
    return lambda rows: _ordered(rows, timestamp).unique(KEY, keep="last", maintain_order=True)


def last_of_instant(rows: pl.DataFrame) -> pl.DataFrame:
    """Choose the last to arrive of the rows with equal key and time."""
    return _ordered(rows, TIME).unique([KEY, TIME], keep="last", maintain_order=True)


def last_of_session(gap: timedelta) -> Chooser:
    """Choose the last row of each session.

    A session ends where the next row is `gap` or more away.
    """

    def choose(rows: pl.DataFrame) -> pl.DataFrame:
        ordered = _ordered(rows, TIME)
        silence = pl.col(TIME).shift(-1).over(KEY) - pl.col(TIME)
        return ordered.filter(silence.is_null() | (silence >= gap))

    return choose


def _ordered(rows: pl.DataFrame, time: str) -> pl.DataFrame:
    """Return the rows not retracted, by key, time and order of arrival."""
    position = [KEY, time, SEQ]
    ordered = _present(rows).sort(position)
    same = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in position)
    if not ordered.select(same.any()).item():
        return ordered
    return ordered.sort(*position, *sorted({*rows.columns} - {*position, TIME, AT, WEIGHT}))


def _present(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col(WEIGHT) > 0).with_columns(pl.lit(1, pl.Int64).alias(WEIGHT))


def _around(rows: pl.DataFrame, retained: TimedTable) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add changes to the stored rows; return the touched neighbourhood before and after.

    It has the rows at the touched instants and the rows next to them.
    """
    before = retained.scan(spans(rows, pl.col(TIME), pl.col(TIME) + MICROSECOND), before=True, after=True)
    after = consolidate(pl.concat([before, rows.select(before.columns)]))
    entries = rows.select(KEY, TIME).unique()
    retained.replace(entries, after.join(entries, on=[KEY, TIME], how="semi"))
    return before, after


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice(Keyed):
    """Choose among the rows with equal `keys`."""

    keys: tuple[str, ...]

    keeps_values: ClassVar[bool] = True

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        check_keyless(rows, self.title)
        if not self.keys:
            raise InvalidValue(f"{self.title}: at least one key is needed", hint="groupby('key')")
        check_known(self.keys, rows.value_names, self.title, "key")
        keys = tuple((name, rows.dtypes[name]) for name in self.keys)
        optional = [name for name, dtype in keys if dtype.is_optional]
        if optional:
            raise InvalidValue(f"{self.title}: key '{optional[0]}' is optional", hint="drop the nulls first")
        return Schema(keys, tuple(item for item in rows.values if item[0] not in self.keys), rows.timestamp)

    def exchange(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)
