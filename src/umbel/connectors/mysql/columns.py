"""The types of MySQL and MariaDB, and conversion from their text form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from umbel.connectors.sql.columns import (
    BYTES,
    DATE,
    FLOAT,
    INSTANT,
    INT,
    JSON,
    NAIVE,
    NUMERIC,
    TEXT,
    VECTORS,
    Column,
    TextForm,
    json_value,
    number,
)
from umbel.types.dtypes import Bool, DType

BIT, SINGLE = "bit", "single"
KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), INT),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"), BYTES),
    **dict.fromkeys(("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"), BYTES),
    **dict.fromkeys(("multipolygon", "geometrycollection", "geomcollection"), BYTES),
    "bit": BIT,
    "float": SINGLE,
    "double": FLOAT,
    "decimal": NUMERIC,
    "json": JSON,
    "date": DATE,
    "timestamp": INSTANT,
    "datetime": NAIVE,
}
"""The kinds of the types that are more than text; enum, set, time, uuid and the others are their text."""


def described(
    name: str, data_type: str, column_type: str, scale: str | None, definition: str, *, is_primary: bool
) -> Column:
    """Return a column from its row in the server's catalog.

    Args:
        name: of the column.
        data_type: its type.
        column_type: its type with length and sign.
        scale: digits after the point.
        definition: the statement that creates the table: MariaDB's type `json` is a text with a check.
        is_primary: whether the table's primary key includes it.
    """
    kind = KINDS.get(data_type.lower(), TEXT)
    checked = rf"json_valid\(`{re.escape(name.replace('`', '``'))}`\)"
    if kind == TEXT and data_type.lower() == "longtext" and re.search(checked, definition, re.IGNORECASE):
        kind = JSON
    places = int(scale) if kind == NUMERIC and scale is not None else None
    return Column(name, kind, False, column_type, places, is_identity=True, is_primary=is_primary)


def read_as(column: Column, name: str) -> str:
    """Return the expression that reads a column exactly, by its quoted name."""
    if column.kind == SINGLE:
        return f"CAST({name} AS DOUBLE)"  # else it is written with six digits
    return f"{name} + 0" if column.kind == BIT else name


def frame(rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> pl.DataFrame:
    """Return rows, as the driver gives them, as columns."""
    values: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    made = (
        pl.Series(column.name, each, dtype=pl.Binary if column.kind == BYTES else pl.String)
        for column, each in zip(columns, values, strict=True)
    )
    return pl.DataFrame(list(made))


def typed(values: pl.Series, column: Column, requested: DType | None) -> pl.Series:
    """Convert a column from its staged form; what has no such form stays text.

    Args:
        values: text, or numbers where the binary log has them.
        column: the column they are from.
        requested: the type they will be validated against, None if unknown.
    """
    if column.kind == BYTES:
        return values
    target = requested.plain if requested is not None else None
    form = _FLAGS if isinstance(target, Bool) and column.kind in {INT, BIT} else FORM
    return form.typed(values, column, requested)


def _single(values: pl.Series) -> pl.Series:
    """Return the shortest numbers that are the same in single precision."""
    return values.cast(pl.Float64, strict=False).cast(pl.Float32).cast(pl.String).cast(pl.Float64)


def _flag(values: pl.Series) -> pl.Series:
    numbers = values.cast(pl.Int64, strict=False)
    return numbers.replace_strict({0: False, 1: True}, default=None, return_dtype=pl.Boolean)


_SCALARS: Mapping[str, Any] = {INT: int, BIT: int, FLOAT: float, SINGLE: float, NUMERIC: number, JSON: json_value}
FORM = TextForm({**VECTORS, SINGLE: _single, BIT: VECTORS[INT]}, _SCALARS, frozenset({JSON}))
_FLAGS = TextForm({INT: _flag, BIT: _flag}, _SCALARS, frozenset())
