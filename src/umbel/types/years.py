"""Instants and days outside the years 1 to 9999.

Columns of files can hold them, Python cannot. Polars raises, or panics, where such a value becomes a Python object.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from umbel.types.epochs import FIRST, LAST, SECOND, YEARS

DAY = 86_400 * SECOND
_PER_UNIT = {"ms": 1_000, "us": 1}


def outside(column: pl.Series) -> list[int]:
    """Return the rows of a column with an instant outside the years 1 to 9999.

    Days count too, and those inside of nested values.
    """
    kind = column.dtype
    if isinstance(kind, pl.Datetime):
        # in ns there are none: 64 bits end in the year 2262
        return _beyond(column, _PER_UNIT[kind.time_unit]) if kind.time_unit in _PER_UNIT else []
    if kind == pl.Date:
        return _beyond(column, DAY)
    if isinstance(kind, pl.List | pl.Array):
        if not _may_hold(kind):
            return []
        rows = pl.DataFrame({"row": pl.int_range(len(column), eager=True), "value": column}).explode("value")
        return rows["row"].gather(outside(rows["value"])).unique(maintain_order=True).to_list()
    if isinstance(kind, pl.Struct) and _may_hold(kind):
        return sorted({row for each in column.struct.unnest() for row in outside(each)})
    return []


def within(column: pl.Series) -> tuple[pl.Series, dict[int, str]]:
    """Return a column with null for such values, and the reasons by row."""
    rows = outside(column)
    if not rows:
        return column, {}
    physical = column.to_physical()
    numbers = physical.gather(rows).to_list() if column.dtype.is_temporal() else ["inside of a value"] * len(rows)
    reasons = {row: f"{YEARS}: {number} ({column.dtype})" for row, number in zip(rows, numbers, strict=True)}
    is_within = ~pl.int_range(len(column), eager=True).is_in(rows)
    return column.to_frame("").select(pl.when(is_within).then("")).to_series().alias(column.name), reasons


def row_of(frame: pl.DataFrame, row: int) -> dict[str, Any]:
    """Return a row as Python values, with None for instants outside the years."""
    return {column.name: within(column)[0].to_list()[0] for column in frame.slice(row, 1).iter_columns()}


def _beyond(column: pl.Series, size: int) -> list[int]:
    first, last = -(-FIRST // size), LAST // size
    numbers = column.to_physical()
    least, most = numbers.min(), numbers.max()
    if least is None or (first <= int(least) and int(most) <= last):  # type: ignore[arg-type]
        return []
    return (~numbers.is_between(first, last)).fill_null(value=False).arg_true().to_list()


def _may_hold(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.List | pl.Array):
        return _may_hold(kind.inner)  # type: ignore[arg-type]
    if isinstance(kind, pl.Struct):
        return any(_may_hold(each.dtype) for each in kind.fields)  # type: ignore[arg-type]
    return kind == pl.Date or isinstance(kind, pl.Datetime)
