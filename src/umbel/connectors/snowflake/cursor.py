"""Reading a table of Snowflake by a cursor column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from umbel.connectors.snowflake.columns import literal, read_as, typed
from umbel.connectors.snowflake.server import SnowflakeDescription, SnowflakeServer, describe
from umbel.connectors.sql.columns import DATE, INT, NUMERIC, TIMES, Column, quote
from umbel.connectors.sql.cursor import NEWER, Low
from umbel.connectors.sql.ranges import Range
from umbel.connectors.sql.statement import StatementCursor, StatementSnapshot
from umbel.types.dtype import DType


@dataclass(frozen=True)
class SnowflakeStatement(StatementSnapshot):
    """A table as one statement reads it."""

    table: SnowflakeDescription

    def rows(self, columns: Mapping[str, Column], low: Low, within: Range | None = None) -> Iterator[pl.DataFrame]:
        """Yield the rows from a cursor on, by cursor, with the column `NEWER`."""
        cursor = self._name(low.cursor.name)
        newer = "TRUE" if low.high is None else f"{cursor} > {_literal(low.cursor, low.high)}"
        start = "" if low.start is None else f" AND {cursor} >= {_start(low)}"
        chosen = ", ".join(read_as(column, self._name(name)) for name, column in columns.items())
        statement = (  # names are quoted, values are literals
            f"SELECT {chosen}, {newer} FROM {self.table.name} WHERE {cursor} IS NOT NULL{start} ORDER BY {cursor}"  # noqa: S608  names are quoted
        )
        with self.connection.cursor() as client:
            for batch in client.execute(statement).fetch_arrow_batches():
                names = [*columns, NEWER]
                places = batch.rename_columns([str(place) for place in range(len(names))])
                frame = pl.DataFrame(pl.from_arrow(places)).rename(dict(zip(places.column_names, names, strict=True)))
                if frame.height:
                    yield frame

    def _name(self, name: str) -> str:
        return quote(self.table.names[name])


@dataclass(frozen=True)
class SnowflakeCursor(StatementCursor):
    """A table read by a cursor column."""

    server: SnowflakeServer

    reading: ClassVar[type[StatementSnapshot]] = SnowflakeStatement

    def typed(self, text: pl.Series, column: Column, requested: DType | None) -> pl.Series:
        return typed(text, column, requested)

    def described(self, connection: Any) -> SnowflakeDescription:
        return describe(connection, self.table, self.fields)

    def examine(self) -> None:
        with self.server.connect() as connection:
            columns = self.columns_of(table := self.described(connection))
            chosen = ", ".join(read_as(column, quote(table.names[name])) for name, column in columns.items())
            connection.cursor().execute(f"SELECT {chosen} FROM {table.name} LIMIT 0")  # noqa: S608  names are quoted


def _literal(column: Column, text: str) -> str:
    """Return a cursor that was read as a literal."""
    if column.kind in {INT, NUMERIC}:
        return text
    if column.kind == DATE:
        return f"{literal(text)}::DATE"
    if column.kind in TIMES:
        kind = column.type.partition("(")[0]
        return (
            f"{literal(text)}::TIMESTAMP_NTZ"
            if kind == "TIMESTAMP_NTZ"
            else f"{literal(text + ' +00:00')}::TIMESTAMP_TZ"
        )
    return literal(text)


def _start(low: Low) -> str:
    """Return the first cursor to be read, as a literal."""
    if low.cursor.kind not in TIMES:
        return _literal(low.cursor, str(low.start))
    first = low.begin.replace(tzinfo=None)
    return _literal(low.cursor, first.date().isoformat() if low.cursor.kind == DATE else first.isoformat(" "))
