"""Reading a table of Snowflake by a cursor column."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl

from umbel.connectors.polled_cursor import PatientCursor, Poll
from umbel.connectors.snowflake.columns import literal, quote, read_as, typed
from umbel.connectors.snowflake.server import SnowflakeDescription, SnowflakeServer, describe
from umbel.connectors.sql.columns import DATE, FLOAT, INT, NUMERIC, TIMES, Column
from umbel.connectors.sql.cursor import NEWER, CursorSource, Low
from umbel.connectors.sql.ranges import Range
from umbel.connectors.sql.server import TableDescription
from umbel.errors import InvalidValue
from umbel.types.dtype import DType


@dataclass(frozen=True)
class SnowflakeSnapshot:
    """The table as one statement reads it.

    Args:
        connection: to the account.
        table: the description of the table.
        begun: the time before the statement, in seconds.
    """

    connection: Any
    table: SnowflakeDescription
    begun: float

    @property
    def mark(self) -> Poll:
        """The time before the statement."""
        return {"begun": self.begun}

    @property
    def earlier(self) -> None:
        """Nothing."""

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
                frame = pl.DataFrame(pl.from_arrow(batch.rename_columns([*columns, NEWER])))
                if frame.height:
                    yield frame

    def ranges(self, low: Low, count: int) -> list[Range] | str:
        """Return the reason against ranges."""
        return "a warehouse reads a table on all of its machines at once"

    def _name(self, name: str) -> str:
        return quote(self.table.names[name])


@dataclass(frozen=True)
class SnowflakeCursor(PatientCursor, CursorSource):
    """A table read by a cursor column.

    Snowflake does not tell which transactions are open. For types other than times, a statement begins at the highest cursor
    as of the last statement that was `disorder` ago.
    """

    server: SnowflakeServer

    def columns_of(self, table: TableDescription) -> dict[str, Column]:
        found = super().columns_of(table)
        if found[self.cursor].kind == FLOAT:
            raise InvalidValue(
                f"{self.title}: column '{self.cursor}' of type FLOAT cannot be a cursor: it has no exact text",
                hint="a cursor is a timestamp, a date, a NUMBER or text that grows with every change of a row",
            )
        return found

    def typed(self, text: pl.Series, column: Column, requested: DType | None) -> pl.Series:
        return typed(text, column, requested)

    def examine(self) -> None:
        with self.server.connect() as connection:
            columns = self.columns_of(table := describe(connection, self.table, self._fields))
            chosen = ", ".join(read_as(column, quote(table.names[name])) for name, column in columns.items())
            connection.cursor().execute(f"SELECT {chosen} FROM {table.name} LIMIT 0")  # noqa: S608  names are quoted

    @contextmanager
    def snapshot(self) -> Iterator[SnowflakeSnapshot]:
        with self.server.connect() as connection:
            yield SnowflakeSnapshot(connection, describe(connection, self.table, self._fields), time.time())

    def present(self, connection: Any, table: TableDescription) -> SnowflakeSnapshot:
        assert isinstance(table, SnowflakeDescription)
        return SnowflakeSnapshot(connection, table, time.time())

    @property
    def _fields(self) -> Sequence[str]:
        return (*(self.options.columns or ()), self.cursor)


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
