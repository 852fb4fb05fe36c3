"""Short ways to write schemas and frames of changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from umbel.operators.leaf import Leaf
from umbel.types.annotations import from_annotation
from umbel.types.schema import Schema

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: float) -> datetime:
    """Return an instant, `number` days after the epoch of these tests."""
    return EPOCH + timedelta(days=number)


def schema(keys: dict[str, Any] | None = None, timestamp: str = "t", **values: Any) -> Schema:
    """Return a schema from annotations."""
    typed = [tuple((n, from_annotation(a)) for n, a in columns.items()) for columns in (keys or {}, values)]
    return Schema(typed[0], typed[1], timestamp)


def leaf(columns: Schema, dataset: str = "D", appends: bool = True) -> Leaf:
    return Leaf(dataset=dataset, version=1, columns=columns, appends=appends)


def changes(columns: Schema, *rows: tuple[Any, ...]) -> pl.DataFrame:
    """Return changes; each row is (values of the schema's columns..., day of `_at`, weight)."""
    names = columns.names
    t = names.index(columns.timestamp)
    records = [
        {
            **dict(zip(names, (*row[:t], day(row[t]), *row[t + 1 : -2]), strict=True)),
            "_at": day(row[-2]),
            "_weight": row[-1],
        }
        for row in rows
    ]
    return pl.DataFrame([{**record, "_seq": seq} for seq, record in enumerate(records)], schema=columns.changes())


def emitted(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return (values of `columns`..., day of `_at`, weight, `_seq`) of each change."""
    days = ((pl.col("_at") - EPOCH) / timedelta(days=1)).alias("_at")
    return frame.with_columns(days).select(*columns, "_at", "_weight", "_seq").rows()
