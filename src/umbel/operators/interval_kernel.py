"""The table-table join kernel: one row per overlap of a left and a right lifetime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from umbel.changes.versions import ALIVE, KEY, TIME, consolidate, difference, rewind
from umbel.state.tables import TimedTable
from umbel.types.schema import AT, WEIGHT

INSTANT = pl.Datetime("us", "UTC")
BEGIN, END = "_begin", "_end"


def step(
    left: pl.DataFrame,
    right: pl.DataFrame,
    lifetimes: TimedTable,
    versions_table: TimedTable,
    fields: Mapping[str, str],
    *,
    inner: bool,
    timestamp: str,
) -> pl.DataFrame:
    """Return the changes of the joined rows.

    Args:
        left: changes with `_key` (the join key) and `_time` (the left row's timestamp).
        right: changes with `_key`, already in `versions_table`.
        lifetimes: the left rows' beginnings and ends; written.
        versions_table: the right dataset's version history.
        fields: right columns in the output, right name to output name.
        inner: True if the part of a lifetime without a right row is dropped.
        timestamp: the left's timestamp column; in the result, the begin of the overlap.
    """
    keys = pl.concat([left.select(KEY), right.select(KEY)]).unique()
    everything = keys.with_columns(pl.lit(None, INSTANT).alias("_low"), pl.lit(None, INSTANT).alias("_high"))
    known = lifetimes.scan(everything)
    remaining = consolidate(pl.concat([known, left.select(known.columns)]))
    entries = left.select(KEY, TIME).unique()
    lifetimes.replace(entries, remaining.join(entries, on=[KEY, TIME], how="semi"))
    versions = versions_table.scan(everything)
    before = _overlaps(known, rewind(versions, right), fields, inner, timestamp)
    after = _overlaps(remaining, versions, fields, inner, timestamp)
    return difference(before, after).drop(KEY)


def _overlaps(
    left: pl.DataFrame, versions: pl.DataFrame, fields: Mapping[str, str], inner: bool, timestamp: str
) -> pl.DataFrame:
    rows = _lifetimes(left)
    pairs = rows.join(_intervals(rows, versions, fields), on=KEY, how="left")
    begin = pl.max_horizontal(BEGIN, pl.col("_from").fill_null(pl.col(BEGIN)))
    end = pl.min_horizontal(END, "_to")
    cut = pairs.with_columns(begin.alias(BEGIN), end.alias(END))
    cut = cut.filter(pl.col(END).is_null() | (pl.col(BEGIN) < pl.col(END)))
    if inner:
        cut = cut.filter(pl.col(ALIVE).fill_null(value=False))
    cut = cut.with_columns(pl.col(BEGIN).alias(timestamp)).drop("_from", "_to", ALIVE)
    begun = cut.with_columns(pl.col(BEGIN).alias(AT), pl.lit(1, pl.Int64).alias(WEIGHT))
    ended = cut.filter(pl.col(END).is_not_null()).with_columns(
        pl.col(END).alias(AT), pl.lit(-1, pl.Int64).alias(WEIGHT)
    )
    return pl.concat([begun, ended]).drop(BEGIN, END)


def _lifetimes(changes: pl.DataFrame) -> pl.DataFrame:
    """Return each left row once, with the begin and the end of its lifetime."""
    identity: Sequence[str] = [name for name in changes.columns if name not in (AT, WEIGHT)]
    begin = pl.col(AT).filter(pl.col(WEIGHT) > 0).min().alias(BEGIN)
    end = pl.col(AT).filter(pl.col(WEIGHT) < 0).min().alias(END)
    rows = changes.group_by(identity, maintain_order=True).agg(begin, end)
    return rows.filter(pl.col(BEGIN).is_not_null()).drop(TIME)


def _intervals(rows: pl.DataFrame, versions: pl.DataFrame, fields: Mapping[str, str]) -> pl.DataFrame:
    """Return the right side as intervals: the current row of each key, gaps included."""
    ordered = versions.sort(KEY, TIME)
    # a tombstone after a gap ends no row: it must not cut the gap in two
    ordered = ordered.filter(pl.col(ALIVE) | pl.col(ALIVE).shift(1).over(KEY).fill_null(value=False))
    columns = [pl.when(ALIVE).then(pl.col(old)).alias(new) for old, new in fields.items()]
    emitted = ordered.select(
        KEY, pl.col(TIME).alias("_from"), pl.col(TIME).shift(-1).over(KEY).alias("_to"), ALIVE, *columns
    )
    first = ordered.group_by(KEY).agg(pl.col(TIME).min().alias("_to"))
    ahead = first.with_columns(pl.lit(None, INSTANT).alias("_from"), pl.lit(value=False).alias(ALIVE))
    return pl.concat([emitted, ahead], how="diagonal")
