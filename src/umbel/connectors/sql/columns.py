"""The columns of a table, and conversion from the text that a database writes."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import polars as pl

from umbel.types.dtypes import Decimal, DType, Float, Str
from umbel.types.long_numbers import has_decimals, parse_long
from umbel.types.raw import column_of

INT, FLOAT, NUMERIC, BOOL, BYTES = "int", "float", "numeric", "bool", "bytes"
DATE, INSTANT, NAIVE, JSON, TEXT = "date", "timestamptz", "timestamp", "json", "text"
TIMES = frozenset({DATE, INSTANT, NAIVE})
_WIDEST = 38


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Args:
        name: as in the table.
        kind: the kind of its values, or of the elements of its arrays.
        is_array: whether its values are arrays.
        type: the name of its type in the database, of elements for arrays.
        scale: digits after the point of a numeric that declares them, else None.
        is_identity: whether the table's replica identity includes it.
        is_primary: whether the table's primary key includes it.
        delimiter: the sign between the elements of its arrays.
    """

    name: str
    kind: str
    is_array: bool
    type: str
    scale: int | None = None
    is_identity: bool = False
    is_primary: bool = False
    delimiter: str = ","

    @property
    def plain(self) -> dict[str, Any]:
        """The column as JSON-compatible data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TextForm:
    """The text that a database writes for values.

    Args:
        vectors: conversions of columns by kind; null is what they cannot convert.
        scalars: conversions of single values by kind; they may raise.
        objects: the kinds whose values are converted one by one.
    """

    vectors: Mapping[str, Callable[[pl.Series], pl.Series]]
    scalars: Mapping[str, Callable[[Any], Any]]
    objects: frozenset[str]

    def typed(self, text: pl.Series, column: Column, requested: DType | None) -> pl.Series:
        """Convert a column; a value that has no other form stays text.

        Args:
            text: the values.
            column: the column they are from.
            requested: the type they will be validated against, None if unknown.
        """
        target = requested.plain if requested is not None else None
        if column.kind == TEXT or (isinstance(target, Str) and column.kind == JSON):
            return text
        if column.kind in self.objects:
            convert = (
                exact_json_value
                if column.kind == JSON and target and has_decimals(target)
                else self.scalars[column.kind]
            )
            return column_of(text.name, [None if value is None else convert(value) for value in text.to_list()])
        values = _numeric(text, target) if column.kind == NUMERIC else self.vectors[column.kind](text)
        lost = values.is_null() & text.is_not_null()
        if not lost.any():
            return values.alias(text.name)
        mixed = [
            value if found is None else found for value, found in zip(text.to_list(), values.to_list(), strict=True)
        ]
        return column_of(
            text.name, [self.scalar(each, column.kind) if isinstance(each, str) else each for each in mixed]
        )

    def scalar(self, value: str, kind: str) -> Any:
        """Convert one value; text without such a value, as the instant `infinity`, stays text."""
        convert = self.scalars.get(kind)
        if convert is not None:
            try:
                return convert(value)
            except (ValueError, KeyError, ArithmeticError):
                return value
        if kind in TIMES:
            found = self.vectors[kind](pl.Series([value], dtype=pl.String))[0]
            return value if found is None else found
        return value


def _numeric(text: pl.Series, target: DType | None) -> pl.Series:
    if isinstance(target, Float):
        found = text.cast(pl.Float64, strict=False)
        return found.set(found.is_infinite() & ~text.str.contains("(?i)inf"), None)  # beyond a float's range
    digits = text.str.len_chars().max()
    points = text.str.split(".").list.get(1, null_on_oob=True).str.len_chars().max()
    scale = max(int(points or 0), 0) if isinstance(points, int | None) else 0
    if scale > _WIDEST or (isinstance(digits, int) and digits - 1 > _WIDEST):
        return pl.Series([None] * len(text), dtype=pl.Int64)
    if isinstance(target, Decimal) and scale <= target.scale:
        return text.cast(target.polars(), strict=False)
    return text.cast(pl.Decimal(_WIDEST, scale), strict=False)


def instants(text: pl.Series) -> pl.Series:
    """Return instants written as `2024-02-29 12:34:56.789`, in UTC."""
    found = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    return found.dt.replace_time_zone("UTC")


def flags(true: str, false: str) -> Callable[[pl.Series], pl.Series]:
    """Return the conversion of two texts to booleans; others are null."""
    return lambda text: text.replace_strict({true: True, false: False}, default=None, return_dtype=pl.Boolean)


VECTORS: Mapping[str, Callable[[pl.Series], pl.Series]] = {
    INT: lambda text: text.cast(pl.Int64, strict=False),
    FLOAT: lambda text: text.cast(pl.Float64, strict=False),
    DATE: lambda text: text.str.to_date("%Y-%m-%d", strict=False),
    INSTANT: instants,
    NAIVE: instants,
}
"""The conversions of columns that databases have in common."""


def quote(name: str) -> str:
    """Return the quoted form of an exact name, as in standard SQL."""
    return '"' + name.replace('"', '""') + '"'


def json_value(value: str) -> Any:
    """Return the value of a JSON text, or the text if it is none."""
    try:
        return orjson.loads(value)
    except ValueError:
        return value


def exact_json_value(value: str) -> Any:
    """Return the value of a JSON text with all its digits, else the text."""
    try:
        return parse_long(value)
    except (ValueError, RecursionError):
        return value


def number(value: str) -> Any:
    """Return a number of any size."""
    found = decimal.Decimal(value)
    return found if found.is_finite() else float(value)
