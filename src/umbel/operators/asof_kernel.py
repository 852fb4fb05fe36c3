"""The as-of join kernel: each left row with the right row current at its instant.

With D for "the changes of": the output changes by D(left) joined with the current right side, and by the effect of D(right) on
earlier left rows. These are added to `waiting`, which is read only where the right side changes, and expire when its
watermark has passed their instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import polars as pl

from umbel.changes.versions import (
    ALIVE,
    KEY,
    MICROSECOND,
    TIME,
    current,
    difference,
    merged,
    rewind,
    spans,
)
from umbel.state.collected import CollectedTable
from umbel.state.tables import TimedTable
from umbel.types.schema import AT

SPAN = {"_low": pl.Datetime("us", "UTC"), "_high": pl.Datetime("us", "UTC")}


@dataclass(frozen=True, slots=True)
class MatchBounds:
    """The bounds of a match.

    For a left row at L it is the right row in force at L + ahead, unless its timestamp is before L − back.

    Args:
        back: None for any age.
        ahead: how far after the left row's instant the right row may start.
        timestamp: the right column that tells its age.
        fields: right columns in the output, right name to output name.
        inner: True if a left row without a match is dropped.
    """

    back: timedelta | None
    ahead: timedelta
    timestamp: str
    fields: Mapping[str, str]
    inner: bool


def step(
    left: pl.DataFrame,
    right: pl.DataFrame,
    waiting: CollectedTable,
    versions_table: TimedTable,
    bounds: MatchBounds,
    watermark: datetime | None,
) -> pl.DataFrame:
    """Return the changes of the joined rows.

    Args:
        left: changes with `_key` (the join key) and `_time` (the left row's timestamp).
        right: changes with `_key`, already in `versions_table`.
        waiting: left rows whose match may still change; written.
        versions_table: the right dataset's version history.
        bounds: the bounds of a match.
        watermark: the right side's; left rows whose match is behind it are removed from `waiting`.
    """
    known = waiting.scan(merged(_affected(right, versions_table, bounds))).select(left.columns)
    rows = pl.concat([known, left])
    versions = versions_table.scan(_searched(rows, right, bounds), before=True)
    _remember(waiting, left, bounds, watermark)
    if known.is_empty():
        return _matched(left, versions, bounds).drop(KEY, TIME)
    before = _matched(known, rewind(versions, right), bounds)
    corrected = difference(before, _matched(known, versions, bounds))
    return pl.concat([corrected, _matched(left, versions, bounds)]).drop(KEY, TIME)


def _affected(right: pl.DataFrame, versions_table: TimedTable, bounds: MatchBounds) -> pl.DataFrame:
    """Return the ranges of left instants whose match the right changes may affect.

    Each extends from the instant of a right change to the next row of its key, or the next change.
    """
    touched = right.select(KEY, pl.col(AT).alias(TIME)).unique()
    if touched.is_empty():
        return pl.DataFrame(schema={KEY: pl.Binary(), **SPAN})
    single = touched.select(KEY, pl.col(TIME).alias("_low"), (pl.col(TIME) + MICROSECOND).alias("_high"))
    following = _live_after(versions_table.scan(merged(single), after=True), touched, versions_table)
    instants = pl.concat([touched, following]).unique().sort(KEY, TIME)
    until = pl.col(TIME).shift(-1).over(KEY)
    last = pl.lit(datetime(9999, 1, 1, tzinfo=UTC), pl.Datetime("us", "UTC"))
    ranges = instants.with_columns(until.fill_null(last).alias("_high")).join(touched, on=[KEY, TIME], how="semi")
    return ranges.select(KEY, (pl.col(TIME) - bounds.ahead).alias("_low"), pl.col("_high") - bounds.ahead)


def _live_after(stored: pl.DataFrame, touched: pl.DataFrame, versions_table: TimedTable) -> pl.DataFrame:
    """Return the positions of live versions that end the ranges of touched instants.

    Tombstones do not: one may end no row, so that matches behind it change, too.

    Args:
        stored: the versions at the touched instants, and the next one after each.
        touched: `_key` and `_time` of the right changes.
        versions_table: all versions.
    """
    position = [KEY, TIME]
    tombstones = stored.filter(~pl.col(ALIVE)).join(touched, on=position, how="anti")
    if tombstones.height:
        later = tombstones.group_by(KEY).agg(
            pl.col(TIME).min().alias("_low"), pl.lit(None, SPAN["_high"]).first().alias("_high")
        )
        stored = pl.concat([stored, versions_table.scan(later).select(stored.columns)])
    return stored.filter(ALIVE).select(position)


def _searched(points: pl.DataFrame, right: pl.DataFrame, bounds: MatchBounds) -> pl.DataFrame:
    requested = points.select(KEY, pl.col(TIME) + bounds.ahead)
    instants = pl.concat([requested, right.select(KEY, pl.col(AT).alias(TIME)).join(requested, on=KEY, how="semi")])
    return spans(instants, pl.col(TIME), pl.col(TIME) + MICROSECOND)


def _matched(rows: pl.DataFrame, versions: pl.DataFrame, bounds: MatchBounds) -> pl.DataFrame:
    own = pl.col("_own")
    points = rows.with_columns(pl.col(TIME).alias("_own"), pl.col(TIME) + bounds.ahead)
    aged = versions.with_columns(pl.col(bounds.timestamp).alias("_begun"))
    found = current(points, aged, {**bounds.fields, "_begun": "_begun"}).with_columns(own.alias(TIME)).drop("_own")
    fits = pl.col("_begun").is_not_null()
    if bounds.back is not None:
        fits = fits & (pl.col("_begun") >= pl.col(TIME) - bounds.back)
    joined = [pl.when(fits).then(pl.col(name)).alias(name) for name in bounds.fields.values()]
    result = found.filter(fits) if bounds.inner else found.with_columns(joined)
    return result.drop("_since", "_begun")


def _remember(waiting: CollectedTable, left: pl.DataFrame, bounds: MatchBounds, watermark: datetime | None) -> None:
    """Store left rows whose match may still change, and drop those behind the watermark."""
    if watermark is None:
        waiting.append(left)
        return
    waiting.append(left.filter(pl.col(TIME) + bounds.ahead >= watermark))
    waiting.expire(watermark - bounds.ahead - timedelta(microseconds=1))
