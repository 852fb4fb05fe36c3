"""How rows become versions of their keys, and which changes that makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from umbel.operators.timeline import ALIVE, KEY, MICROSECOND, TIME, advance, changelog, difference, spans
from umbel.state.keys import encode_columns
from umbel.types.schema import AT, SEQ, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbel.state.tables import Table


def with_key(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Add the encoded key of each row."""
    return frame.with_columns(encode_columns(frame, columns).alias(KEY))


def upsert(rows: pl.DataFrame, timeline: Table) -> pl.DataFrame:
    """Splice rows into the timelines of their keys; return the changes that makes.

    Args:
        rows: changes with `_key`. A weight of +1 starts a version at `_at`, −1 ends the key's row there. Of one key and
            instant the row with the largest `_seq` wins; of several sources' rows with equal ones that with the largest values.
        timeline: the versions so far; written.
    """
    starts = rows.with_columns(pl.col(AT).alias(TIME), (pl.col(WEIGHT) > 0).alias(ALIVE)).drop(AT, WEIGHT)
    touched = pl.col(TIME)
    before = timeline.scan(spans(starts, touched, touched + MICROSECOND), before=True, after=True)
    both = pl.concat([before, starts.select(before.columns)])
    place = [KEY, TIME, SEQ]
    ordered, identity = both.sort(place, maintain_order=True), [KEY, "_begun", SEQ, AT]
    if ordered.select(pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in place).any()).item():
        names = sorted({*both.columns} - {*place, ALIVE})
        ordered, identity = both.sort(*place, ALIVE, *names), [*identity, *(name for name in names if name != AT)]
    after = ordered.unique([KEY, TIME], keep="last", maintain_order=True)
    entries = starts.select(KEY, TIME).unique()
    timeline.replace_at(entries, after.join(entries, on=[KEY, TIME], how="semi"))
    return version_difference(before, after, identity).drop(KEY)


def version_difference(before: pl.DataFrame, after: pl.DataFrame, identity: Sequence[str]) -> pl.DataFrame:
    """Return the changes between two states of timelines whose rows are told apart by some columns and `_begun`, their start."""
    former, later = (changelog(versions.with_columns(pl.col(TIME).alias("_begun"))) for versions in (before, after))
    return difference(former, later, identity).drop("_begun")


def follow(changes: pl.DataFrame, timeline: Table) -> None:
    """Apply the changes of a derived dataset to its stored timeline.

    Args:
        changes: changes with `_key`, as an operator emitted them.
        timeline: the versions so far; written.
    """
    touched = pl.col(AT)
    before = timeline.scan(spans(changes, touched, touched + MICROSECOND), before=True)
    after = advance(before, changes)
    entries = changes.select(KEY, pl.col(AT).alias(TIME)).unique()
    timeline.replace_at(entries, after.join(entries, on=[KEY, TIME], how="semi"))
