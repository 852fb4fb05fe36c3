"""The columns of a Postgres table, and conversion from Postgres' text form."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import orjson
import polars as pl

from umbel.types.dtypes import Decimal, DType, Float, Str
from umbel.types.raw import column_of

INT, FLOAT, NUMERIC, BOOL, BYTES = "int", "float", "numeric", "bool", "bytes"
DATE, INSTANT, NAIVE, JSON, TEXT = "date", "timestamptz", "timestamp", "json", "text"
KINDS = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), INT),
    **dict.fromkeys(("float4", "float8"), FLOAT),
    **dict.fromkeys(("json", "jsonb"), JSON),
    "numeric": NUMERIC,
    "bool": BOOL,
    "bytea": BYTES,
    "date": DATE,
    "timestamptz": INSTANT,
    "timestamp": NAIVE,
}
"""The kinds of the types that are more than text; uuid, enum, interval, inet and the others are their text."""
TIMES = frozenset({DATE, INSTANT, NAIVE})
_WIDEST = 38


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Args:
        name: as in the table.
        kind: the kind of its values, or of the elements of its arrays.
        is_array: whether its values are arrays.
        type: the name of its type in Postgres, of elements for arrays.
        scale: digits after the point of a numeric that declares them, else None.
        is_identity: whether the table's replica identity includes it.
        is_primary: whether the table's primary key includes it.
    """

    name: str
    kind: str
    is_array: bool
    type: str
    scale: int | None = None
    is_identity: bool = False
    is_primary: bool = False

    @property
    def plain(self) -> dict[str, Any]:
        """The column as JSON-compatible data."""
        return asdict(self)

    @classmethod
    def of(cls, name: str, typname: str, element: str | None, typmod: int, roles: tuple[bool, bool]) -> Self:
        """Return a column from its row in Postgres' catalog."""
        kind = KINDS.get(element or typname, TEXT)
        scale = (typmod - 4) & 0xFFFF if kind == NUMERIC and typmod >= 4 else None
        return cls(name, kind, element is not None, element or typname, scale, *roles)


def typed(text: pl.Series, column: Column, requested: DType | None) -> pl.Series:
    """Convert a column from Postgres' text form; what has no such form stays text.

    Args:
        text: the values.
        column: the column they are from.
        requested: the type they will be validated against, None if unknown.
    """
    target = requested.plain if requested is not None else None
    if column.is_array:
        return column_of(text.name, _each(lambda value: _array(value, column.kind), text.to_list()))
    if column.kind == TEXT or (isinstance(target, Str) and column.kind == JSON):
        return text
    if column.kind in _OBJECTS:
        return column_of(text.name, _each(_OBJECTS[column.kind], text.to_list()))
    values = _numeric(text, column, target) if column.kind == NUMERIC else _VECTORS[column.kind](text)
    lost = values.is_null() & text.is_not_null()
    if not lost.any():
        return values.alias(text.name)
    mixed = [value if found is None else found for value, found in zip(text.to_list(), values.to_list(), strict=True)]
    return column_of(text.name, [_scalar(each, column.kind) if isinstance(each, str) else each for each in mixed])


def _numeric(text: pl.Series, column: Column, target: DType | None) -> pl.Series:
    if isinstance(target, Float):
        return text.cast(pl.Float64, strict=False)
    digits = text.str.len_chars().max()
    points = text.str.split(".").list.get(1, null_on_oob=True).str.len_chars().max()
    scale = max(int(points or 0), 0) if isinstance(points, int | None) else 0
    if scale > _WIDEST or (isinstance(digits, int) and digits - 1 > _WIDEST):
        return pl.Series([None] * len(text), dtype=pl.Int64)
    if isinstance(target, Decimal) and scale <= target.scale:
        return text.cast(target.polars(), strict=False)
    return text.cast(pl.Decimal(_WIDEST, scale), strict=False)


def _bool(text: pl.Series) -> pl.Series:
    return text.replace_strict({"t": True, "f": False}, default=None, return_dtype=pl.Boolean)


def _instant(text: pl.Series) -> pl.Series:
    return _naive(text.str.strip_suffix("+00"))


def _naive(text: pl.Series) -> pl.Series:
    found = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    return found.dt.replace_time_zone("UTC")


_VECTORS: Mapping[str, Callable[[pl.Series], pl.Series]] = {
    INT: lambda text: text.cast(pl.Int64, strict=False),
    FLOAT: lambda text: text.cast(pl.Float64, strict=False),
    BOOL: _bool,
    DATE: lambda text: text.str.to_date("%Y-%m-%d", strict=False),
    INSTANT: _instant,
    NAIVE: _naive,
}


def _bytes(value: str) -> Any:
    return bytes.fromhex(value[2:]) if value.startswith("\\x") else value


def _json(value: str) -> Any:
    try:
        return orjson.loads(value)
    except ValueError:
        return value


_OBJECTS: Mapping[str, Callable[[str], Any]] = {BYTES: _bytes, JSON: _json}


def _number(value: str) -> Any:
    found = decimal.Decimal(value)
    return found if found.is_finite() else float(value)


_SCALARS: Mapping[str, Callable[[str], Any]] = {
    INT: int,
    FLOAT: float,
    NUMERIC: _number,
    BOOL: {"t": True, "f": False}.__getitem__,
    **_OBJECTS,
}


def _scalar(value: str, kind: str) -> Any:
    """Convert one value; text without such a value, as the instant `infinity`, stays text."""
    convert = _SCALARS.get(kind)
    if convert is not None:
        try:
            return convert(value)
        except (ValueError, KeyError, ArithmeticError):
            return value
    if kind in TIMES:
        found = _VECTORS[kind](pl.Series([value], dtype=pl.String))[0]
        return value if found is None else found
    return value


def _each(convert: Callable[[str], Any], values: Sequence[str | None]) -> list[Any]:
    return [None if value is None else convert(value) for value in values]


def _array(text: str, kind: str) -> Any:
    """Return the elements of an array in Postgres' text form, such as `{1,NULL,"a b",{2}}`."""
    begin = text.find("{")  # lower bounds other than 1 stand before it
    values: list[Any] = []
    stack, at = [values], begin + 1
    while at < len(text):
        sign = text[at]
        if sign == "{":
            inner: list[Any] = []
            stack[-1].append(inner)
            stack.append(inner)
            at += 1
        elif sign == "}":
            stack.pop()
            at += 1
        elif sign == ",":
            at += 1
        elif sign == '"':
            value, at = _quoted(text, at + 1)
            stack[-1].append(_scalar(value, kind))
        else:
            end = min(found for found in (text.find(",", at), text.find("}", at)) if found >= 0)
            value, at = text[at:end], end
            stack[-1].append(None if value == "NULL" else _scalar(value, kind))
    return values


def _quoted(text: str, at: int) -> tuple[str, int]:
    """Return a quoted element, and the position after its closing quote."""
    found = []
    while text[at] != '"':
        at += text[at] == "\\"
        found.append(text[at])
        at += 1
    return "".join(found), at + 1
