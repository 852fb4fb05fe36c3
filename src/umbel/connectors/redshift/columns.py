"""The types of Redshift: expressions that read them exactly, and conversion from these."""

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
    TIMES,
    VECTORS,
    Column,
    TextForm,
    flags,
    json_value,
    number,
)
from umbel.types.dtype import DType

_TYPES = {
    16: ("boolean", BOOL),
    20: ("bigint", INT),
    21: ("smallint", INT),
    23: ("integer", INT),
    25: ("text", TEXT),
    26: ("oid", INT),
    700: ("real", FLOAT),
    701: ("double precision", FLOAT),
    1042: ("char", TEXT),
    1043: ("varchar", TEXT),
    1082: ("date", DATE),
    1083: ("time", TEXT),
    1114: ("timestamp", NAIVE),
    1184: ("timestamptz", INSTANT),
    1266: ("timetz", TEXT),
    1700: ("numeric", NUMERIC),
    4000: ("super", JSON),
    6551: ("varbyte", BYTES),
}
"""The types by the numbers that the protocol has for them, and their kinds; of others the text is read."""
COMPARABLE = frozenset({"char", "varchar", "text"})
"""The types of text that can be cursors."""
_INSTANT = "YYYY-MM-DD HH24:MI:SS.US BC"
_READ = {
    **dict.fromkeys((INT, NUMERIC), "CAST({} AS VARCHAR)"),
    **dict.fromkeys((FLOAT, TEXT, JSON), "{}"),
    BOOL: "CASE {} WHEN TRUE THEN 't' WHEN FALSE THEN 'f' END",
    BYTES: "FROM_VARBYTE({}, 'hex')",
    DATE: "TO_CHAR({}, 'YYYY-MM-DD BC')",
    NAIVE: f"TO_CHAR({{}}, '{_INSTANT}')",
    INSTANT: f"TO_CHAR({{}} AT TIME ZONE 'UTC', '{_INSTANT}')",
}
"""The expressions that read kinds: text of one form for any setting of the session and any version of the protocol."""
_READ_TYPES = {
    **dict.fromkeys(("time", "timetz"), "CAST({} AS VARCHAR)"),
    "char": "RTRIM({})",
    "real": "CAST({} AS DOUBLE PRECISION)",
}
_ERA = " AD"


def described(name: str, oid: int) -> Column:
    """Return a column from its row in the description of a result.

    Args:
        name: of the column.
        oid: the number of its type.
    """
    written, kind = _TYPES.get(oid, (f"number {oid}", TEXT))
    return Column(name, kind, False, written, is_identity=True)


def read_as(column: Column, quoted: str) -> str:
    """Return the expression that reads a column exactly."""
    return (_READ_TYPES.get(column.type) or _READ[column.kind]).format(quoted)


def staged(values: list[Any], column: Column) -> pl.Series:
    """Return the values of a column as they are staged."""
    if column.kind == FLOAT:
        return pl.Series(column.name, values, dtype=pl.Float64)
    text = pl.Series(column.name, [None if each is None else str(each) for each in values], dtype=pl.String)
    if column.kind == BYTES:
        return text.str.decode("hex")
    return text.str.strip_suffix(_ERA) if column.kind in TIMES else text


def typed(values: pl.Series, column: Column, requested: DType | None) -> pl.Series:
    """Convert a column from its staged form; what has no such form stays text.

    Args:
        values: text, or numbers and bytes of types that are read as they are.
        column: the column they are from.
        requested: the type they will be validated against, None if unknown.
    """
    return values if column.kind == BYTES else FORM.typed(values, column, requested)


def literal(text: str) -> str:
    """Return text as an expression without a backslash, which escapes in Redshift and nowhere else.

    >>> literal("it's")
    "'it''s'"
    >>> literal("a" + chr(92))
    "('a' || CHR(92) || '')"
    """
    parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\\")]
    return parts[0] if len(parts) == 1 else f"({' || CHR(92) || '.join(parts)})"


def cursor_literal(column: Column, text: str) -> str:
    """Return a cursor that was read as an expression of its column's type.

    Args:
        column: the cursor's.
        text: its staged form.
    """
    if column.kind in {INT, NUMERIC}:
        return text
    if column.kind == TEXT:
        return f"CAST({literal(text)} AS VARCHAR(65535))"
    zone = "+00" if column.kind == INSTANT else ""
    return f"CAST('{text}{zone}' AS {column.type.upper()})"


_SCALARS: Mapping[str, Callable[[str], Any]] = {INT: int, FLOAT: float, NUMERIC: number, JSON: json_value}
FORM = TextForm({**VECTORS, BOOL: flags("t", "f")}, _SCALARS, frozenset({JSON}))
