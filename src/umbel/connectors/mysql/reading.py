"""Rows of tables of MySQL, as the server sends them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.connectors.mysql.columns import typed
from umbel.connectors.mysql.server import MySQLServer
from umbel.connectors.sql.columns import BYTES, FLOAT, INT, NUMERIC, Column
from umbel.connectors.sql.rows import TableSource
from umbel.types.dtype import DType

if TYPE_CHECKING:
    from pymysql import Connection

PART_BYTES = 16 << 20
"""Bytes of rows from which on those read so far are staged as a part."""
AT_ONCE = 1000
"""Rows after which the bytes are counted."""
_NUMBERS = frozenset({INT, FLOAT, NUMERIC})


@dataclass(frozen=True)
class MySQLSource(TableSource):
    """A table of MySQL."""

    server: MySQLServer

    def typed(self, text: pl.Series, column: Column, requested: DType | None) -> pl.Series:
        return typed(text, column, requested)


def literal(connection: Connection[Any], column: Column, text: str) -> str:
    """Return the literal of a value's text; bytes are in hexadecimal digits."""
    if column.kind == BYTES:
        return f"X'{text}'"
    if column.kind not in _NUMBERS:
        return str(connection.escape(text))
    number = str(float(text)) if column.kind == FLOAT else text
    return f"{number}e0" if column.kind == FLOAT and "e" not in number else number


def pieces(connection: Connection[Any], statement: str) -> Iterator[Sequence[Sequence[Any]]]:
    """Yield the rows of a statement, about `PART_BYTES` at a time.

    The connection is closed if not all of them are taken.
    """
    from pymysql.cursors import SSCursor

    cursor = SSCursor(connection)
    cursor.execute(statement)
    try:
        found, size = list[Sequence[Any]](), 0
        while rows := cursor.fetchmany(AT_ONCE):
            found += rows
            size += sum(len(value) for row in rows for value in row if value is not None)
            if size >= PART_BYTES:
                yield found
                found, size = [], 0
        if found:
            yield found
    except GeneratorExit:
        # else the driver would read the rest of the rows before it closes
        cursor._result.unbuffered_active = False
        connection.close()
        raise
