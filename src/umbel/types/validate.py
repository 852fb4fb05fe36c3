"""Ingestion validation: each row is accepted by the schema or rejected with a reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from umbel.errors import InvalidValue, misspelt
from umbel.types.dtype import Checked, DType, nulls
from umbel.types.raw import REJECTS, rejects

MISSING = "the column is missing"
"""How the reason begins why the rows of a frame without a column are rejected."""


@dataclass(frozen=True, slots=True)
class Validated:
    """The result of validating a raw frame: accepted and rejected rows.

    Args:
        frame: the accepted rows: the columns of the schema, in its order, in storage form.
        accepted: the row numbers of the accepted rows in the raw frame (UInt32).
        rejects: (row, field, reason), one for each invalid field of the rejected rows, sorted by row.
    """

    frame: pl.DataFrame
    accepted: pl.Series
    rejects: pl.DataFrame


def validate(frame: pl.DataFrame, schema: Mapping[str, DType], *, refused: pl.DataFrame | None = None) -> Validated:
    """Validate a raw frame by column and convert the accepted rows to storage form.

    Args:
        frame: raw rows, of any types; columns that are not in the schema are ignored.
        schema: the required columns, and their types.
        refused: rejects found before, as by `from_records`: these rows are not validated again.
    """
    spare = [name for name in frame.columns if name not in schema]
    columns = {name: ingested(frame, name, dtype, spare) for name, dtype in schema.items()}
    known = pl.DataFrame(schema=REJECTS) if refused is None else refused
    parts = [rejects(column.errors, name) for name, column in columns.items() if column.errors]
    found = pl.concat([known, *(part.filter(~pl.col("row").is_in(known["row"].implode())) for part in parts)])
    values = pl.DataFrame([column.values.alias(name) for name, column in columns.items()])
    if not found.height:
        return Validated(values, pl.arange(frame.height, dtype=pl.UInt32, eager=True), found)
    good = np.ones(frame.height, np.bool_)
    good[found["row"].to_numpy()] = False
    accepted = pl.Series(np.flatnonzero(good), dtype=pl.UInt32)
    return Validated(values.filter(pl.Series(good)), accepted, found.sort("row", maintain_order=True))


def ingested(frame: pl.DataFrame, name: str, dtype: DType, spare: Iterable[str] = ()) -> Checked:
    """Return a column of a raw frame in storage form.

    All rows are invalid where it is missing.

    Args:
        frame: raw rows.
        name: of the column.
        dtype: its type.
        spare: names of columns that nothing reads, one of which may be meant.
    """
    if name in frame.columns:
        return dtype.ingest(frame[name])
    reason = f"{MISSING}, expected {dtype}{misspelt([name], spare)}"
    return Checked(nulls(frame.height, dtype.polars()), dict.fromkeys(range(frame.height), reason))


def refuse_rejects(validated: Validated, schema: Mapping[str, DType], dataset: str) -> None:
    """Raise one error for all rejects, if there are any.

    Raises:
        InvalidValue: names the dataset, and for every invalid column its type and the first reason.
    """
    if not validated.rejects.height:
        return
    columns = validated.rejects.group_by("field", maintain_order=True).agg(
        pl.col("row", "reason").first(), pl.len().alias("count")
    )
    errors = [
        f"column '{field}' of type {schema[field]}: {reason} (row {row}{_others(count - 1)})"
        if field in schema
        else f"{reason} (row {row}{_others(count - 1)})"
        for field, row, reason, count in columns.iter_rows()
    ]
    message = f"Schema validation failed during data insertion to {dataset}: " + "; ".join(errors)
    is_missing = columns["reason"].str.contains(MISSING, literal=True).all()
    remedy = (
        "add the column"
        if is_missing
        else "mend the rows, or make the field Optional or of another type in a new version"
    )
    raise InvalidValue(message, hint=remedy)


def _others(count: int) -> str:
    return f" and {count} more" if count else ""
