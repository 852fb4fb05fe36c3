"""Version histories: the rows of a key over time, and their changelog.

A *version* is a row of a key with the instant it starts (`_time`); it ends where the next version of its key starts. A version
that is not `_alive` is a tombstone: from there on the key has no row. A frame of versions has `_key`, `_time`, `_alive`, `_seq`
and the row's columns. `changelog` turns versions into changes, `advance` applies changes to versions, `rewind` undoes changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from umbel.changes import runs
from umbel.types.schema import AT, SEQ, WEIGHT

if TYPE_CHECKING:
    from umbel.types.schema import Schema

KEY = "_key"
TIME = "_time"
ALIVE = "_alive"
MICROSECOND = pl.duration(microseconds=1)


def version_columns(schema: Schema) -> dict[str, pl.DataType]:
    """Return the columns of a stored version of a row of `schema`."""
    return {**schema.polars(), SEQ: pl.Int64(), ALIVE: pl.Boolean()}


def consolidate(changes: pl.DataFrame, identity: Sequence[str] | None = None) -> pl.DataFrame:
    """Sum the weights of equal changes and drop those that cancel out.

    Args:
        changes: a frame of changes.
        identity: the columns that identify a change; all but the weight when None.
    """
    columns = [name for name in changes.columns if name != WEIGHT] if identity is None else list(identity)
    others = [pl.col(name).first() for name in changes.columns if name != WEIGHT and name not in columns]
    summed = changes.group_by(columns, maintain_order=True).agg(*others, pl.col(WEIGHT).sum())
    return summed.filter(pl.col(WEIGHT) != 0).select(changes.columns)


def difference(before: pl.DataFrame, after: pl.DataFrame, identity: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the changes from `before` to `after`: retractions first, then insertions."""
    if before.is_empty():
        return after
    retracted = before.with_columns(-pl.col(WEIGHT))
    return consolidate(pl.concat([retracted, after.select(before.columns)]), identity)


def insertions(changes: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """Return the insertions that were not retracted, by time.

    Each has its net weight. A row without a key may be taken back at an instant of its own.
    """
    identity = [*schema.names, AT] if schema.is_keyed else schema.names
    return consolidate(changes, identity).filter(pl.col(WEIGHT) > 0).sort(schema.timestamp, SEQ)


def changelog(versions: pl.DataFrame) -> pl.DataFrame:
    """Return the changes of versions: each live one begins, and ends where its successor begins."""
    ordered = versions.sort(KEY, TIME)
    begins = ordered.filter(ALIVE).with_columns(pl.col(TIME).alias(AT), pl.lit(1, pl.Int64).alias(WEIGHT))
    is_ended = pl.col(ALIVE) & (pl.col(KEY) == pl.col(KEY).shift(-1))
    ends = ordered.with_columns(pl.col(TIME).shift(-1).alias(AT), pl.lit(-1, pl.Int64).alias(WEIGHT)).filter(is_ended)
    return pl.concat([begins, ends.select(begins.columns)]).drop(TIME, ALIVE)


def advance(versions: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    """Apply changes to versions.

    Args:
        versions: every version at an instant of a change, and for each key the one before the earliest of these.
        changes: a frame of changes with `_key`.

    Returns:
        The versions afterwards, sorted by key and time.
    """
    touched = changes.select(KEY, AT).unique()
    known = changelog(versions).join(touched, on=[KEY, AT], how="semi")
    net = consolidate(pl.concat([known, changes.select(known.columns)]))
    begun = net.filter(pl.col(WEIGHT) > 0).sort(KEY, AT, SEQ).unique([KEY, AT], keep="last", maintain_order=True)
    ended = net.join(begun, on=[KEY, AT], how="anti").unique([KEY, AT]).select(KEY, AT)
    fresh = [as_versions(begun, versions, alive=True), as_versions(ended, versions, alive=False)]
    retained = versions.join(touched, left_on=[KEY, TIME], right_on=[KEY, AT], how="anti")
    return pl.concat([retained, *fresh]).sort(KEY, TIME)


def rewind(versions: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    """Return the versions as of before `changes` were applied.

    A tombstone that ends no row is in no change: it may have come with them, so it must not end what was there before.
    """
    if changes.is_empty():
        return versions
    ordered = versions.sort(KEY, TIME)
    effective = ordered.filter(pl.col(ALIVE) | pl.col(ALIVE).shift(1).over(KEY).fill_null(value=True))
    return advance(effective, changes.with_columns(-pl.col(WEIGHT)))


def as_versions(changes: pl.DataFrame, like: pl.DataFrame, *, alive: bool) -> pl.DataFrame:
    """Return the versions that changes start at their instants; columns they lack are null.

    Args:
        changes: one for each key and instant.
        like: a frame of versions.
        alive: False for tombstones.
    """
    rows = changes.with_columns(pl.col(AT).alias(TIME), pl.lit(alive).alias(ALIVE))
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in like.schema.items() if name not in rows.columns]
    return rows.with_columns(missing).select(like.columns).cast(like.schema)


def spans(frame: pl.DataFrame, low: pl.Expr, high: pl.Expr) -> pl.DataFrame:
    """Return one scan range per key: [smallest low, largest high)."""
    return frame.group_by(KEY, maintain_order=True).agg(low.min().alias("_low"), high.max().alias("_high"))


def merged(ranges: pl.DataFrame) -> pl.DataFrame:
    """Merge the ranges of a key that touch or overlap.

    A scan of the merged ranges returns each entry once. No bound is null.
    """
    if ranges.is_empty():
        return ranges
    ordered = ranges.sort(KEY, "_low")
    low, high = (ordered[name].to_physical().to_numpy() for name in ("_low", "_high"))
    begins = runs.key_changes(ordered, [KEY])
    distinct, rank = np.unique(high, return_inverse=True)
    before = runs.numbers(begins) * len(distinct)  # so that the running maximum begins anew with each key
    farthest = distinct[np.maximum.accumulate(before + rank) - before]
    begins[1:] |= low[1:] > farthest[:-1]
    ends = np.append(np.flatnonzero(begins)[1:], len(low)) - 1
    reached = pl.Series("_high", farthest[ends]).cast(ordered.schema["_high"])
    return ordered.filter(pl.Series(begins)).with_columns(reached)


def current(points: pl.DataFrame, versions: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """Add to each point the current version of its key at its instant.

    Args:
        points: `_key`, `_time` and any other columns.
        versions: the versions to search, for each key back to one before its earliest point.
        names: the versions' columns to add, old name to new.

    Returns:
        The points, in some order, with the renamed columns (null if no version is current) and `_since`, the instant
        the version started.
    """
    right = versions.select(
        KEY, TIME, ALIVE, pl.col(TIME).alias("_since"), *(pl.col(a).alias(b) for a, b in names.items())
    )
    found = points.sort(TIME).join_asof(
        right.sort(TIME), on=TIME, by=KEY, strategy="backward", coalesce=True, check_sortedness=False
    )
    gone = pl.col(ALIVE).not_().fill_null(value=True)
    added = ["_since", *names.values()]
    return found.with_columns(pl.when(gone).then(None).otherwise(pl.col(name)).alias(name) for name in added).drop(
        ALIVE
    )
