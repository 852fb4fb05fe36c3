"""Operators that choose among the rows of a key: latest, first and dedup.

Each keeps the rows it may still have to choose from, with their weights, so that a row taken back brings the runner-up back.
What is chosen is a function of the set of rows; the changes are the difference of the choices before and after. Rows of one
instant come in the order of their source; those with the same place in it (of two sources, or made of one row) by their values.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import polars as pl

from umbel.operators.tables import Table
from umbel.operators.timeline import ALIVE, KEY, MICROSECOND, TIME, changelog, consolidate, difference, spans
from umbel.types.schema import AT, SEQ, WEIGHT

Chooser = Callable[[pl.DataFrame], pl.DataFrame]


def latest(rows: pl.DataFrame, kept: Table) -> pl.DataFrame:
    """Return the changes of an upsert stream: every row becomes the row of its key from its time on.

    Args:
        rows: changes with `_key` and `_time` (the row's timestamp).
        kept: the rows so far, by key and time; written.
    """
    before, after = _around(rows, kept)
    return difference(_upserts(before), _upserts(after)).drop(KEY)


def _upserts(rows: pl.DataFrame) -> pl.DataFrame:
    chosen = last_of_instant(rows).drop("_at", WEIGHT)
    return changelog(chosen.with_columns(pl.lit(value=True).alias(ALIVE)))


def nearby(rows: pl.DataFrame, kept: Table, choose: Chooser) -> pl.DataFrame:
    """Return the changes of a choice that depends on a row's neighbours in time alone."""
    before, after = _around(rows, kept)
    return difference(choose(before), choose(after)).drop(KEY, TIME)


def among_all(rows: pl.DataFrame, kept: Table, choose: Chooser, *, forget: bool) -> pl.DataFrame:
    """Return the changes of a choice among all rows of a key.

    Args:
        rows: changes with `_key`.
        kept: the rows so far, by key; written.
        choose: all rows of some keys to the chosen ones.
        forget: whether the rows not chosen can be dropped, because none is ever taken back.
    """
    keys = rows[KEY].unique()
    before = kept.get(keys)
    after = consolidate(pl.concat([before, rows.select(before.columns)]))
    chosen = choose(after)
    kept.replace(keys, chosen if forget else after)
    return difference(choose(before), chosen).drop(KEY)


def earliest(timestamp: str) -> Chooser:
    """Choose the row with the smallest timestamp; of equal ones the one seen first."""
    return lambda rows: _ordered(rows, timestamp).unique(KEY, keep="first", maintain_order=True)


def newest(timestamp: str) -> Chooser:
    """Choose the row with the largest timestamp; of equal ones the one seen last."""
    return lambda rows: _ordered(rows, timestamp).unique(KEY, keep="last", maintain_order=True)


def last_of_instant(rows: pl.DataFrame) -> pl.DataFrame:
    """Choose of the rows with equal key and time the one seen last."""
    return _ordered(rows, TIME).unique([KEY, TIME], keep="last", maintain_order=True)


def last_of_session(gap: timedelta) -> Chooser:
    """Choose the last row of each session; a session ends where the next row is `gap` or more away."""

    def choose(rows: pl.DataFrame) -> pl.DataFrame:
        ordered = _ordered(rows, TIME)
        silence = pl.col(TIME).shift(-1).over(KEY) - pl.col(TIME)
        return ordered.filter(silence.is_null() | (silence >= gap))

    return choose


def _ordered(rows: pl.DataFrame, time: str) -> pl.DataFrame:
    """Return the rows that are there by key and in the order in which they were seen."""
    place = [KEY, time, SEQ]
    ordered = _present(rows).sort(place)
    same = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in place)
    if not ordered.select(same.any()).item():
        return ordered
    return ordered.sort(*place, *sorted({*rows.columns} - {*place, TIME, AT, WEIGHT}))


def _present(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col(WEIGHT) > 0).with_columns(pl.lit(1, pl.Int64).alias(WEIGHT))


def _around(rows: pl.DataFrame, kept: Table) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add changes to the rows kept; return those of the touched instants and their neighbours, before and after."""
    before = kept.scan(spans(rows, pl.col(TIME), pl.col(TIME) + MICROSECOND), before=True, after=True)
    after = consolidate(pl.concat([before, rows.select(before.columns)]))
    entries = rows.select(KEY, TIME).unique()
    kept.replace_at(entries, after.join(entries, on=[KEY, TIME], how="semi"))
    return before, after
