"""The types of Snowflake: expressions that read them exactly, and conversion from these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
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
    json_value,
    number,
    quote,
)
from umbel.types.dtypes import DType

KINDS = {
    **dict.fromkeys(("VARIANT", "OBJECT", "ARRAY", "MAP", "VECTOR", "GEOGRAPHY", "GEOMETRY"), JSON),
    **dict.fromkeys(("NUMBER", "DECFLOAT"), NUMERIC),
    **dict.fromkeys(("FLOAT", "DOUBLE", "REAL"), FLOAT),
    "BINARY": BYTES,
    "BOOLEAN": BOOL,
    "DATE": DATE,
    "TIMESTAMP_NTZ": NAIVE,
    "TIMESTAMP_LTZ": INSTANT,
    "TIMESTAMP_TZ": INSTANT,
}
"""The kinds of the types that are more than text; time, varchar and the others are their text."""
_DAY, _TIME = "YYYY-MM-DD", "HH24:MI:SS.FF9"
_READ = {
    **dict.fromkeys((INT, NUMERIC, BOOL), "TO_VARCHAR({})"),
    **dict.fromkeys((FLOAT, BYTES, TEXT), "{}"),
    DATE: f"TO_VARCHAR({{}}, '{_DAY}')",
    NAIVE: f"TO_VARCHAR({{}}, '{_DAY} {_TIME}')",
    INSTANT: f"TO_VARCHAR(CONVERT_TIMEZONE('UTC', {{}})::TIMESTAMP_NTZ, '{_DAY} {_TIME}')",
    JSON: "TO_JSON({}::VARIANT)",
}
"""The expressions that read kinds: text of one form for any setting of the session, and numbers of FLOAT bit by bit."""
_READ_TYPES = {
    "TIME": f"TO_VARCHAR({{}}, '{_TIME}')",
    "VECTOR": "TO_JSON({}::ARRAY::VARIANT)",
    "GEOGRAPHY": "TO_JSON(ST_ASGEOJSON({})::VARIANT)",
    "GEOMETRY": "TO_JSON(ST_ASGEOJSON({})::VARIANT)",
}


def described(name: str, written: str, *, is_primary: bool) -> Column:
    """Return a column from its row in `DESCRIBE TABLE`.

    Args:
        name: of the column.
        written: its type, such as `NUMBER(38,2)`.
        is_primary: whether the table's primary key includes it.
    """
    base = type_name(written)
    kind, scale = KINDS.get(base, TEXT), re.fullmatch(r"NUMBER\(\d+,\s*(\d+)\)", written)
    if scale and scale[1] == "0":
        kind = INT
    places = int(scale[1]) if scale and kind == NUMERIC else None
    return Column(name, kind, False, written, places, is_identity=True, is_primary=is_primary)


def type_name(written: str) -> str:
    """Return the name of a type without its arguments.

    >>> type_name("TIMESTAMP_NTZ(9)")
    'TIMESTAMP_NTZ'
    """
    return written.partition("(")[0].strip().upper()


def read_as(column: Column, quoted: str) -> str:
    """Return the expression that reads a column exactly."""
    return (_READ_TYPES.get(type_name(column.type)) or _READ[column.kind]).format(quoted)


def literal(text: str) -> str:
    """Return text as a literal; a backslash escapes in Snowflake."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def exact(name: str) -> str:
    """Return a name of SQL in the catalog: upper case unless quoted.

    >>> exact("orders"), exact('"Orders"')
    ('ORDERS', 'Orders')
    """
    is_quoted = len(name) > 1 and name[0] == name[-1] == '"'
    return name[1:-1].replace('""', '"') if is_quoted else name.upper()


def unquoted(name: str) -> str:
    """Return the field name for a name of SQL: lower case unless quoted."""
    found = exact(name)
    return found.lower() if found == found.upper() else found


def same_name(field: str, name: str) -> bool:
    """Return whether a field is of the column that a name of SQL means."""
    return exact(name) in {field, field.upper()}


def names_of(columns: Iterable[str], fields: Iterable[str]) -> dict[str, str]:
    """Return the names of columns in the catalog, by the names of fields.

    Args:
        columns: the names in the catalog.
        fields: those of the dataset, in any case for columns of upper case.
    """
    by_name = {**{each.upper(): each for each in fields}, **{each: each for each in fields}}
    return {by_name.get(each, unquoted(quote(each))): each for each in columns}


def typed(values: pl.Series, column: Column, requested: DType | None) -> pl.Series:
    """Convert a column from its staged form; what has no such form stays text.

    Args:
        values: text, or numbers and bytes of types that are read as they are.
        column: the column they are from.
        requested: the type they will be validated against, None if unknown.
    """
    return values if column.kind == BYTES else FORM.typed(values, column, requested)


_SCALARS: Mapping[str, Callable[[str], Any]] = {INT: int, FLOAT: float, NUMERIC: number, JSON: json_value}
FORM = TextForm({**VECTORS, BOOL: flags("true", "false")}, _SCALARS, frozenset({JSON}))
