"""Raw frames: input rows before validation.

No row is lost, and no value changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import accumulate, chain
from typing import Any

import polars as pl

from umbel.types.dtype import DType, describe, is_missing
from umbel.types.instants import Datetime

REJECTS = {"row": pl.Int64(), "field": pl.String(), "reason": pl.String()}
TOMBSTONE = "the record has no value (a tombstone)"
"""The reason for which a message without a value is rejected."""
_TYPED: dict[type, Any] = {
    int: pl.Int64,
    float: pl.Float64,
    str: pl.String,
    bool: pl.Boolean,
    bytes: pl.Binary,
    date: pl.Date,
}


@dataclass(frozen=True, slots=True)
class Raw:
    """Input rows before validation, with rejects.

    Args:
        frame: one row for each input row; a column is typed when all its values are of one type, else Object.
        rejects: (row, field, reason) of records that are not rows; such a row is all null in `frame`.
        deletions: row number of a deleted row to the instant of its deletion.
        starts: instants before which the rows of a change capture are not in force, null for none.
        replaces: mask of the changes that end what their key had before them, also if it begins later; None for none.
        truncations: row number of the end of all rows before to its instant; such a row is all null in `frame`.
        objects: the JSON objects of the rows, where they were read without columns: an absent member is not null there.
        is_sparse: True if rows are objects, whose absent members are null; else a missing column is an error of all rows.
    """

    frame: pl.DataFrame
    rejects: pl.DataFrame
    deletions: Mapping[int, datetime | None] = field(default_factory=dict)
    starts: pl.Series | None = None
    replaces: pl.Series | None = None
    truncations: Mapping[int, datetime] = field(default_factory=dict)
    objects: Sequence[Any] | None = None
    is_sparse: bool = False

    def updates(self) -> dict[int, datetime | None]:
        """Return the rows that may have replaced another of their key, with its end."""
        rows = [] if self.starts is None else self.starts.is_not_null().arg_true().to_list()
        return {} if self.starts is None else dict(zip(rows, self.starts.drop_nulls().to_list(), strict=True))


def may_join(raw: Raw, other: Raw) -> bool:
    """Return whether rows are of one form, so that `joined` takes both."""

    def form(each: Raw) -> tuple[Any, ...]:
        missing = each.starts is None, each.replaces is None, each.objects is None
        return each.frame.schema, each.is_sparse, *missing

    return form(raw) == form(other) and raw.frame.width > 0 and pl.Object not in raw.frame.dtypes


def joined(parts: Sequence[Raw]) -> Raw:
    """Return the rows of several parts, in order; all of one form."""
    at = [0, *accumulate(part.frame.height for part in parts)]
    each = list(zip(at, parts, strict=False))
    starts = [part.starts for part in parts if part.starts is not None]
    replaces = [part.replaces for part in parts if part.replaces is not None]
    return Raw(
        pl.concat([part.frame for part in parts]),
        pl.concat([part.rejects.with_columns(pl.col("row") + begin) for begin, part in each]),
        {begin + row: instant for begin, part in each for row, instant in part.deletions.items()},
        pl.concat(starts) if starts else None,
        pl.concat(replaces) if replaces else None,
        {begin + row: instant for begin, part in each for row, instant in part.truncations.items()},
        None if parts[0].objects is None else [row for part in parts for row in part.objects or ()],
        parts[0].is_sparse,
    )


def from_records(
    rows: Sequence[Any], declared: Mapping[str, DType] | None = None, names: Iterable[str] | None = None
) -> Raw:
    """Return Python or JSON objects as a raw frame; never raises.

    Args:
        rows: dictionaries; an absent key is null; anything else is rejected.
        declared: columns that exist even if no row has them; one whose values all fit its type is returned in storage form.
        names: the columns that are needed; None for those of any row.
    """
    requested = declared or {}
    strays = [row for row, kind in enumerate(map(type, rows)) if kind is not dict and not _is_row(rows[row])]
    refused = {row: f"expected an object, got {describe(rows[row])}" for row in strays}
    objects = [row if _is_row(row) else {} for row in rows] if refused else rows
    if names is None:
        names = dict.fromkeys(name for name in chain(requested, chain.from_iterable(objects)) if isinstance(name, str))
    columns = {name: _declared(name, [row.get(name) for row in objects], requested.get(name)) for name in names}
    return Raw(pl.DataFrame(columns, height=len(rows)) if columns else pl.DataFrame(height=len(rows)), rejects(refused))


def rejects(reasons: Mapping[int, str], field: str = "") -> pl.DataFrame:
    """Return the frame of rejected rows; an empty field means the whole row."""
    return pl.DataFrame(
        {"row": list(reasons), "field": [field] * len(reasons), "reason": list(reasons.values())}, schema=REJECTS
    )


def column_of(name: str, values: Sequence[Any]) -> pl.Series:
    """Return Python values as a column, typed if possible, else Object.

    A column is typed when all values have one type that Polars stores unchanged.
    """
    kinds = set(map(type, values)) - {type(None)}
    if any(kind.__name__ in {"NAType", "NaTType"} for kind in kinds):
        return column_of(name, [None if is_missing(value) else value for value in values])
    if kinds and all(issubclass(kind, datetime) for kind in kinds):
        return Datetime().convert_objects(values).values.alias(name)
    dtype = _TYPED.get(next(iter(kinds))) if len(kinds) == 1 else None
    if not kinds:
        return pl.Series(name, [None] * len(values), dtype=pl.Null)
    if dtype is not None:
        try:
            return pl.Series(name, values, dtype=dtype, strict=True)
        except (OverflowError, TypeError, ValueError, pl.exceptions.PolarsError):
            pass  # an integer beyond 64 bits, or text that is not Unicode
    return pl.Series(name, values, dtype=pl.Object)


def _is_row(value: Any) -> bool:
    return isinstance(value, Mapping)


def _declared(name: str, values: list[Any], dtype: DType | None) -> pl.Series:
    if dtype is not None:
        checked = dtype.convert(values)
        if not checked.errors:
            return checked.values.alias(name)
    return column_of(name, values)
