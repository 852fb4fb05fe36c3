"""The table-table join kernel: one row per overlap of a left and a right lifetime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from umbel.changes.versions import ALIVE, KEY, MICROSECOND, TIME, consolidate, difference, rewind
from umbel.state.tables import CollectedTable, TimedTable
from umbel.types.schema import AT, WEIGHT

INSTANT = pl.Datetime("us", "UTC")
BEGIN, END = "_begin", "_end"
FIRST, LAST = "_first", "_last"


def step(
    left: pl.DataFrame,
    right: pl.DataFrame,
    lifetimes: CollectedTable,
    versions_table: TimedTable,
    fields: Mapping[str, str],
    *,
    inner: bool,
    timestamp: str,
) -> pl.DataFrame:
    """Return the changes of the joined rows.

    Of a left row that changed, all overlaps are computed before and after; of the others only those at changed right rows.

    Args:
        left: changes with `_key` (the join key) and `_time` (the left row's timestamp).
        right: changes with `_key`, already in `versions_table`.
        lifetimes: the left rows' beginnings and ends; written.
        versions_table: the right dataset's version history.
        fields: right columns in the output, right name to output name.
        inner: True if the part of a lifetime without a right row is dropped.
        timestamp: the left's timestamp column; in the result, the begin of the overlap.
    """
    entries = left.select(KEY, TIME).unique()
    ranges = entries.select(KEY, pl.col(TIME).alias("_low"), (pl.col(TIME) + MICROSECOND).alias("_high"))
    touched = lifetimes.scan(ranges)
    remaining = consolidate(pl.concat([touched, left.select(touched.columns)]))
    lifetimes.append(left)
    changed = right.group_by(KEY).agg(pl.col(AT).min().alias(FIRST), pl.col(AT).max().alias(LAST))
    known, rows, others = _lifetimes(touched), _lifetimes(remaining), _others(lifetimes, entries, changed)
    versions = _versions(versions_table, changed, pl.concat([known, rows]))
    before = _overlaps(pl.concat([known, others]), _rewound(versions, right), fields, inner, timestamp)
    after = _overlaps(pl.concat([rows, others]), versions, fields, inner, timestamp)
    return difference(before, after).drop(KEY)


def _others(lifetimes: CollectedTable, entries: pl.DataFrame, changed: pl.DataFrame) -> pl.DataFrame:
    """Return the lifetimes of other rows that right changes of their key concern.

    These are the rows at other entries that do not end before the first of these changes.
    """
    stored = lifetimes.scan(_whole(changed)).join(entries, on=[KEY, TIME], how="anti")
    found = _lifetimes(stored).join(changed.select(KEY, FIRST), on=KEY)
    return found.filter(pl.col(END).is_null() | (pl.col(END) > pl.col(FIRST))).drop(FIRST)


def _versions(versions_table: TimedTable, changed: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the versions in the lifetimes of rows, and those around the changed ones.

    A row of a key with changes may have begun before the first of these versions or end after the last one. The overlaps with the
    versions left out are the same before and after, provided that a live version is the first and the last one: a tombstone
    may be one of several in a gap, and all versions of its key are returned.
    """
    needed = pl.concat(
        [
            rows.select(KEY, pl.col(BEGIN).alias("_low"), pl.col(END).alias("_high")),
            changed.select(KEY, pl.col(FIRST).alias("_low"), (pl.col(LAST) + MICROSECOND).alias("_high")),
        ]
    )
    is_open = pl.col("_high").is_null().any()
    high = pl.when(is_open).then(None).otherwise(pl.col("_high").max())
    ranges = needed.group_by(KEY).agg(pl.col("_low").min(), high.alias("_high"))
    versions = versions_table.scan(ranges, before=True, after=True)
    edges = versions.group_by(KEY).agg((~pl.col(ALIVE).first() | ~pl.col(ALIVE).last()).alias("_gap"))
    gaps = edges.filter("_gap").join(changed, on=KEY, how="semi")
    if gaps.is_empty():
        return versions
    return pl.concat([versions.join(gaps, on=KEY, how="anti"), versions_table.scan(_whole(gaps))])


def _rewound(versions: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """Return versions as of before the right changes."""
    keys = right.select(KEY).unique()
    changed, others = (versions.join(keys, on=KEY, how=how) for how in ("semi", "anti"))
    return pl.concat([others, rewind(changed, right)])


def _whole(keys: pl.DataFrame) -> pl.DataFrame:
    """Return ranges of all time."""
    return keys.select(KEY, *(pl.lit(None, INSTANT).alias(bound) for bound in ("_low", "_high")))


def _overlaps(
    rows: pl.DataFrame, versions: pl.DataFrame, fields: Mapping[str, str], inner: bool, timestamp: str
) -> pl.DataFrame:
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
