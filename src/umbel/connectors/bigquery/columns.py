"""The types of BigQuery, and conversion from the JSON of its results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson
import polars as pl

from umbel.connectors.sql.columns import (
    BOOL,
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
    flags,
    json_value,
    number,
)
from umbel.types.dtype import DType

OLDER = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL", "RECORD": "STRUCT"}
"""The names that the API has for types of SQL."""
KINDS = {
    "INT64": INT,
    "FLOAT64": FLOAT,
    "NUMERIC": NUMERIC,
    "BIGNUMERIC": NUMERIC,
    "BOOL": BOOL,
    "BYTES": BYTES,
    "DATE": DATE,
    "DATETIME": NAIVE,
    "TIMESTAMP": INSTANT,
    "JSON": JSON,
    "STRUCT": JSON,
}
"""The kinds of the types that are more than text; string, time, interval, geography, range are their text."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Parameter = int | Decimal | str | datetime | Any


def type_of(field: Any) -> str:
    """Return the type of a field in SQL, without that it is repeated."""
    return OLDER.get(field.field_type, str(field.field_type))


def described(name: str, field: Any) -> Column:
    """Return a column from its field in a table's schema.

    Args:
        name: of the column here.
        field: with a name, a type, a mode, and fields of its own.
    """
    written = type_of(field)
    kind = JSON if field.mode == "REPEATED" else KINDS.get(written, TEXT)
    return Column(name, kind, False, f"ARRAY<{written}>" if field.mode == "REPEATED" else written, is_identity=True)


def staged(values: Sequence[Any], column: Column, field: Any) -> pl.Series:
    """Return the staged form of a column of a result.

    Args:
        values: texts, or objects for arrays and structs.
        column: the column.
        field: in the table's schema.
    """
    if field.mode == "REPEATED" or type_of(field) == "STRUCT":
        nested = [None if each is None else orjson.dumps(_nested(field, each)).decode() for each in values]
        return pl.Series(column.name, nested, dtype=pl.String)
    text = pl.Series(column.name, values, dtype=pl.String)
    if column.kind == BYTES:
        return text.str.decode("base64")
    if column.kind == INSTANT:  # of a result, µs since the epoch
        return text.cast(pl.Int64).cast(pl.Datetime("us")).dt.to_string("%Y-%m-%d %H:%M:%S%.6f")
    return text.str.replace("T", " ", literal=True) if column.kind == NAIVE else text


def _nested(field: Any, value: Any) -> Any:
    """Return a value of an array or a struct as JSON."""
    if value is None:
        return None
    if field.mode == "REPEATED":
        return [_single(field, each["v"]) for each in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if value is None:
        return None
    written = type_of(field)
    if written == "STRUCT":
        parts = zip(field.fields, value["f"], strict=True)
        return {part.name: _nested(part, each["v"]) for part, each in parts}
    convert = _SINGLE.get(written)
    return value if convert is None else convert(value)


def _finite(value: str) -> Any:
    found = float(value)
    return found if math.isfinite(found) else value  # JSON has no such number


def _instant(value: str) -> str:
    return (_EPOCH + timedelta(microseconds=int(value))).isoformat()


def typed(values: pl.Series, column: Column, requested: DType | None) -> pl.Series:
    """Convert a column from its staged form; what has no such form stays text.

    Args:
        values: text, or bytes.
        column: the column they are from.
        requested: the type they will be validated against, None if unknown.
    """
    return values if column.kind == BYTES else FORM.typed(values, column, requested)


def parameter(column: Column, text: str, instant: Callable[[str, Column], datetime] | None) -> Parameter:
    """Return a cursor that was read as the value of a query's parameter.

    Args:
        column: the cursor's.
        text: its staged form.
        instant: converts the text of a time.
    """
    if column.kind == INT:
        return int(text)
    if column.kind == NUMERIC:
        return Decimal(text)
    if column.kind == TEXT:
        return text
    assert instant is not None
    return of_instant(column, instant(text, column))


def of_instant(column: Column, at: datetime) -> Any:
    """Return an instant as the value of a parameter of a column's type."""
    if column.kind == DATE:
        return at.date()
    return at if column.kind == INSTANT else at.replace(tzinfo=None)


_SINGLE: Mapping[str, Callable[[str], Any]] = {
    "INT64": int,
    "FLOAT64": _finite,
    "BOOL": lambda value: value == "true",
    "TIMESTAMP": _instant,
    "JSON": json_value,
}
_SCALARS: Mapping[str, Callable[[str], Any]] = {INT: int, FLOAT: float, NUMERIC: number, JSON: json_value}
FORM = TextForm({**VECTORS, BOOL: flags("true", "false")}, _SCALARS, frozenset({JSON}))
