"""The types of Postgres, and conversion from their text form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
    instants,
    json_value,
    number,
)
from umbel.types.dtypes import DType
from umbel.types.raw import column_of

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


def described(
    name: str, typname: str, element: str | None, typmod: int, roles: tuple[bool, bool], delimiter: str = ","
) -> Column:
    """Return a column from its row in Postgres' catalog."""
    kind = KINDS.get(element or typname, TEXT)
    scale = (typmod - 4) & 0xFFFF if kind == NUMERIC and typmod >= 4 else None
    return Column(name, kind, element is not None, element or typname, scale, *roles, delimiter)


def streamed(name: str, oid: int, typmod: int) -> Column:
    """Return a column from its description in the stream.

    Args:
        name: of the column.
        oid: of its type; one that is not built in is read as its text.
        typmod: the modifier of the type.
    """
    from psycopg import adapters

    found = adapters.types.get(oid)
    if found is None:
        return Column(name, TEXT, False, "")
    element = found.name if found.array_oid == oid else None
    return described(name, found.name, element, typmod, (False, False), found.delimiter)


def typed(text: pl.Series, column: Column, requested: DType | None) -> pl.Series:
    """Convert a column from Postgres' text form; what has no such form stays text.

    Args:
        text: the values.
        column: the column they are from.
        requested: the type they will be validated against, None if unknown.
    """
    if column.is_array:
        values = (None if value is None else _array(value, column.kind, column.delimiter) for value in text.to_list())
        return column_of(text.name, list(values))
    return FORM.typed(text, column, requested)


def _bytes(value: str) -> Any:
    return bytes.fromhex(value[2:]) if value.startswith("\\x") else value


_SCALARS: Mapping[str, Callable[[str], Any]] = {
    INT: int,
    FLOAT: float,
    NUMERIC: number,
    BOOL: {"t": True, "f": False}.__getitem__,
    BYTES: _bytes,
    JSON: json_value,
}
FORM = TextForm(
    {**VECTORS, BOOL: flags("t", "f"), INSTANT: lambda text: instants(text.str.strip_suffix("+00"))},
    _SCALARS,
    frozenset({BYTES, JSON}),
)


def _array(text: str, kind: str, delimiter: str) -> Any:
    """Return the elements of an array in Postgres' text form, such as `{1,NULL,"a b",{2}}`."""
    begin = text.find("{")  # lower bounds other than 1 stand before it
    if begin < 0:
        return text  # as of an older version, which took int2vector for an array
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
        elif sign == delimiter:
            at += 1
        elif sign == '"':
            value, at = _quoted(text, at + 1)
            stack[-1].append(FORM.scalar(value, kind))
        else:
            end = min(found for found in (text.find(delimiter, at), text.find("}", at)) if found >= 0)
            value, at = text[at:end], end
            stack[-1].append(None if value == "NULL" else FORM.scalar(value, kind))
    return values


def _quoted(text: str, at: int) -> tuple[str, int]:
    """Return a quoted element, and the position after its closing quote."""
    found = []
    while text[at] != '"':
        at += text[at] == "\\"
        found.append(text[at])
        at += 1
    return "".join(found), at + 1
