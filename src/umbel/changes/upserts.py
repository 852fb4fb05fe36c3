"""Upserts: rows as versions of their keys, and the resulting changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from umbel.changes import runs
from umbel.changes.versions import ALIVE, KEY, MICROSECOND, TIME, advance, as_versions, changelog, difference, spans
from umbel.state.keys import encode_columns
from umbel.types.schema import AT, SEQ, TRUNCATION, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbel.state.tables import TimedTable


def with_key(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Add `_key`, the encoded key of each row."""
    return frame.with_columns(encode_columns(frame, columns).alias(KEY))


def upsert(rows: pl.DataFrame, versions_table: TimedTable) -> pl.DataFrame:
    """Splice rows into the version history of their keys; return the resulting changes.

    Args:
        rows: changes with `_key`. A weight of +1 starts a version at `_at`, −1 ends the key's row there. Of one key and
            instant the row with the largest `_seq` wins; if rows of several sources have the same one, that with the largest
            values.
        versions_table: the versions so far; written.
    """
    starts = rows.with_columns(pl.col(AT).alias(TIME), (pl.col(WEIGHT) > 0).alias(ALIVE)).drop(AT, WEIGHT)
    touched = pl.col(TIME)
    before = versions_table.scan(spans(starts, touched, touched + MICROSECOND), before=True, after=True)
    both = pl.concat([before, starts.select(before.columns)])
    position = [KEY, TIME, SEQ]
    ordered, identity = both.sort(position, maintain_order=True), [KEY, "_begun", SEQ, AT]
    if ordered.select(pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in position).any()).item():
        names = sorted({*both.columns} - {*position, ALIVE})
        ordered, identity = both.sort(*position, ALIVE, *names), [*identity, *(name for name in names if name != AT)]
    after = ordered.unique([KEY, TIME], keep="last", maintain_order=True)
    versions_table.write(after.join(starts, on=[KEY, TIME], how="semi"))
    return version_difference(before, after, identity).drop(KEY)


def spread(rows: pl.DataFrame, versions_table: TimedTable) -> pl.DataFrame:
    """Replace each truncation by the ends of all rows that are there then.

    A row before it that begins later ends where it begins.

    Args:
        rows: changes with `_key`; a truncation has the weight `TRUNCATION`.
        versions_table: the versions so far.
    """
    is_truncation = pl.col(WEIGHT) == TRUNCATION
    truncations = rows.filter(is_truncation).select(AT, SEQ).sort(SEQ).rows()
    if not truncations:
        return rows
    rest = rows.filter(~is_truncation)
    before = versions_table.all()
    begun = rest.with_columns(pl.col(AT).alias(TIME), (pl.col(WEIGHT) > 0).alias(ALIVE)).select(before.columns)
    versions, ended = pl.concat([before, begun]), list[pl.DataFrame]()
    for at, seq in truncations:
        there = versions.filter(pl.col(SEQ) < seq).sort(KEY, TIME, SEQ)
        last = there.unique([KEY, TIME], keep="last", maintain_order=True)
        now = last.filter(pl.col(TIME) <= at).unique(KEY, keep="last", maintain_order=True)
        instant = pl.lit(at).cast(last.schema[TIME]).alias(TIME)
        ends = pl.concat([now.with_columns(instant), last.filter(pl.col(TIME) > at)]).filter(ALIVE)
        ended.append(ends.with_columns(pl.lit(seq, pl.Int64).alias(SEQ), pl.lit(False).alias(ALIVE)))
        versions = pl.concat([versions, ended[-1]])
    made = pl.concat(ended).with_columns(pl.col(TIME).alias(AT), pl.lit(-1, pl.Int64).alias(WEIGHT))
    return pl.concat([rest, made.select(rest.columns)])


def version_difference(before: pl.DataFrame, after: pl.DataFrame, identity: Sequence[str]) -> pl.DataFrame:
    """Return the changes between two states of version histories.

    Rows are identified by the columns in `identity`, which may include `_begun`, the start of the version.
    """
    former, later = (changelog(versions.with_columns(pl.col(TIME).alias("_begun"))) for versions in (before, after))
    return difference(former, later, identity).drop("_begun")


def overlay(
    changes: pl.DataFrame, rows: pl.DataFrame, made: TimedTable, direct: TimedTable, versions_table: TimedTable
) -> pl.DataFrame:
    """Splice rows into the version history of a derived dataset; return the combined changes.

    Of one key and instant a row wins over one of the pipeline. The pipeline ends only its own rows: a row already superseded is
    not ended.

    Args:
        changes: changes with `_key`, as an operator emitted them.
        rows: changes with `_key`, each the current row of its key from its time on.
        made: the versions of `changes` so far; written.
        direct: those of `rows`; written.
        versions_table: both combined; written.
    """
    if changes.height:
        follow(changes, made)
    if rows.height:
        upsert(rows, direct)
    keys = pl.concat([changes.select(KEY), rows.select(KEY)]).unique()
    whole = keys.with_columns(pl.lit(None, pl.Datetime("us", "UTC")).alias(bound) for bound in ("_low", "_high"))
    parts = [each.scan(whole).with_columns(pl.lit(part).alias("_part")) for part, each in enumerate((made, direct))]
    after = _laid_over(pl.concat(parts))
    before = versions_table.scan(whole)
    versions_table.replace(pl.concat([each.select(KEY, TIME) for each in (before, after)]).unique(), after)
    return difference(changelog(before), changelog(after)).drop(KEY)


def _laid_over(versions: pl.DataFrame) -> pl.DataFrame:
    """Merge several version histories into one; the later `_part` wins at equal instants."""
    first = versions.sort(KEY, TIME, ALIVE, "_part").unique([KEY, TIME], keep="last", maintain_order=True)
    current = pl.when(ALIVE).then("_part").forward_fill().over(KEY)
    return first.filter(pl.col(ALIVE) | (pl.col("_part") == current)).drop("_part")


def follow(changes: pl.DataFrame, versions_table: TimedTable) -> None:
    """Apply the changes of a derived dataset to its stored version history.

    Args:
        changes: changes with `_key`, as an operator emitted them.
        versions_table: the versions so far; written.
    """
    points = changes.select(KEY, pl.col(AT).alias("_low")).unique()
    stored = versions_table.scan(points.with_columns((pl.col("_low") + MICROSECOND).alias("_high")))
    if stored.is_empty():
        rest = changes
    else:
        known = stored.select(KEY, TIME).unique()
        rest = changes.join(known, left_on=[KEY, AT], right_on=[KEY, TIME], how="anti")
        _correct(changes.join(known, left_on=[KEY, AT], right_on=[KEY, TIME], how="semi"), versions_table)
    plain, others = _one_by_instant(rest)
    begun, ended = plain.filter(pl.col(WEIGHT) > 0), plain.filter(pl.col(WEIGHT) < 0).select(KEY, AT)
    versions_table.write(as_versions(begun, stored, alive=True))
    if ended.height:
        versions_table.write(as_versions(ended, stored, alive=False))
    if others.height:
        _correct(others, versions_table)


def _correct(changes: pl.DataFrame, versions_table: TimedTable) -> None:
    """Apply changes at instants of which versions may be stored."""
    touched = pl.col(AT)
    before = versions_table.scan(spans(changes, touched, touched + MICROSECOND), before=True)
    after = advance(before, changes)
    entries = changes.select(KEY, pl.col(AT).alias(TIME)).unique()
    versions_table.replace(entries, after.join(entries, on=[KEY, TIME], how="semi"))


def _one_by_instant(changes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the deciding change of each key and instant, and those to sum up.

    A row that begins decides, the last of several, else one that ends. Sums decide where equal rows may cancel out.
    """
    begins = pl.col(WEIGHT) > 0
    ordered = changes.sort(KEY, AT, begins, SEQ, maintain_order=True)
    starts = runs.key_changes(ordered, [KEY, AT])
    first = np.flatnonzero(starts)
    sizes = runs.lengths(starts)
    last = first + sizes - 1
    weights = ordered[WEIGHT].to_numpy()
    is_mixed = (weights[first] < 0) & (weights[last] > 0)
    is_summed = is_mixed & (sizes > 2)
    pairs = np.flatnonzero(is_mixed & (sizes == 2))
    if len(pairs):
        values = ordered.drop(WEIGHT)
        ended, begun = values[first[pairs]], values[last[pairs]]
        is_equal = [ended[name].eq_missing(begun[name]).to_numpy() for name in values.columns]
        is_summed[pairs] = np.logical_and.reduce(is_equal)
    return ordered[last[~is_summed]], ordered.filter(pl.Series(np.repeat(is_summed, sizes)))
