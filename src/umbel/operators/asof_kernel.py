"""The as-of join: each left row with the right row of its key that is current at the left row's instant.

With D for "the changes of": the output changes by D(left) joined with the right side as it is now, and by what D(right) makes
of the left rows that came earlier. Those are kept in `waiting` until the right side's watermark has passed their instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import polars as pl

from umbel.operators.tables import Table
from umbel.operators.timeline import (
    KEY,
    MICROSECOND,
    TIME,
    consolidate,
    current,
    difference,
    merged,
    rewind,
    spans,
)
from umbel.types.schema import AT

SPAN = {"_low": pl.Datetime("us", "UTC"), "_high": pl.Datetime("us", "UTC")}


@dataclass(frozen=True, slots=True)
class Reach:
    """Which right rows a left row at L may match: the latest not after L + ahead, if not before L − back.

    Args:
        back: None for any age.
        ahead: how far after the left row's instant the right row may start.
        fields: right columns in the output, right name to output name.
        inner: whether a left row without a match is dropped.
    """

    back: timedelta | None
    ahead: timedelta
    fields: Mapping[str, str]
    inner: bool


def step(
    left: pl.DataFrame, right: pl.DataFrame, waiting: Table, timeline: Table, reach: Reach, watermark: datetime | None
) -> pl.DataFrame:
    """Return the changes of the joined rows.

    Args:
        left: changes with `_key` (the join key) and `_time` (the left row's timestamp).
        right: changes with `_key`, already in `timeline`.
        waiting: left rows that may still see their match change; written.
        timeline: the right dataset's versions.
        reach: the bounds of a match.
        watermark: the right side's; left rows whose match lies behind it wait no longer.
    """
    asked = pl.col(TIME)
    affected = merged(_affected(right, timeline, reach))
    own = left.select(KEY, asked.alias("_low"), (asked + MICROSECOND).alias("_high"))
    known = waiting.scan(merged(pl.concat([affected, own])))
    kept = consolidate(pl.concat([known, left.select(known.columns)]))
    versions = timeline.scan(_searched(pl.concat([known, kept]), right, reach), before=True)
    before = _matched(known, rewind(versions, right), reach)
    _remember(waiting, left, known, kept, reach, watermark)
    return difference(before, _matched(kept, versions, reach)).drop(KEY, TIME)


def _affected(right: pl.DataFrame, timeline: Table, reach: Reach) -> pl.DataFrame:
    """Return the left instants whose match the right changes may move: from each up to the next version."""
    touched = right.select(KEY, pl.col(AT).alias(TIME)).unique()
    if touched.is_empty():
        return pl.DataFrame(schema={KEY: pl.Binary(), **SPAN})
    single = touched.select(KEY, pl.col(TIME).alias("_low"), (pl.col(TIME) + MICROSECOND).alias("_high"))
    stored = timeline.scan(merged(single), after=True).select(KEY, TIME)
    instants = pl.concat([touched, stored]).unique().sort(KEY, TIME)
    until = pl.col(TIME).shift(-1).over(KEY)
    last = pl.lit(datetime(9999, 1, 1, tzinfo=UTC), pl.Datetime("us", "UTC"))
    ranges = instants.with_columns(until.fill_null(last).alias("_high")).join(touched, on=[KEY, TIME], how="semi")
    return ranges.select(KEY, (pl.col(TIME) - reach.ahead).alias("_low"), pl.col("_high") - reach.ahead)


def _searched(points: pl.DataFrame, right: pl.DataFrame, reach: Reach) -> pl.DataFrame:
    wanted = points.select(KEY, pl.col(TIME) + reach.ahead)
    instants = pl.concat([wanted, right.select(KEY, pl.col(AT).alias(TIME)).join(wanted, on=KEY, how="semi")])
    return spans(instants, pl.col(TIME), pl.col(TIME) + MICROSECOND)


def _matched(rows: pl.DataFrame, versions: pl.DataFrame, reach: Reach) -> pl.DataFrame:
    own = pl.col("_own")
    points = rows.with_columns(pl.col(TIME).alias("_own"), pl.col(TIME) + reach.ahead)
    found = current(points, versions, reach.fields).with_columns(own.alias(TIME)).drop("_own")
    fits = pl.col("_since").is_not_null()
    if reach.back is not None:
        fits = fits & (pl.col("_since") >= pl.col(TIME) - reach.back)
    joined = [pl.when(fits).then(pl.col(name)).alias(name) for name in reach.fields.values()]
    result = found.filter(fits) if reach.inner else found.with_columns(joined)
    return result.drop("_since")


def _remember(
    waiting: Table,
    left: pl.DataFrame,
    known: pl.DataFrame,
    kept: pl.DataFrame,
    reach: Reach,
    watermark: datetime | None,
) -> None:
    entries = left.select(KEY, TIME).unique()
    if watermark is not None:
        settled = pl.col(TIME) + reach.ahead < watermark
        entries = pl.concat([entries, known.filter(settled).select(KEY, TIME)]).unique()
        kept = kept.filter(~settled)
    waiting.replace_at(entries, kept.join(entries, on=[KEY, TIME], how="semi"))
