"""Cursor reads by the clock, of databases that do not tell which transactions are open."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from umbel.connectors.polled_cursor import PatientCursor, Poll
from umbel.connectors.sql.columns import FLOAT, Column
from umbel.connectors.sql.cursor import CursorSource, Low
from umbel.connectors.sql.ranges import Range
from umbel.connectors.sql.server import TableDescription
from umbel.errors import InvalidValue


@dataclass(frozen=True)
class StatementSnapshot:
    """A table as one statement reads it.

    Args:
        connection: to its database.
        table: the description of the table.
        begun: the time before the statement, in seconds.
    """

    connection: Any
    table: TableDescription
    begun: float

    whole: ClassVar[str] = "a warehouse reads a table on all of its machines at once"
    """The reason against ranges."""

    @property
    def mark(self) -> Poll:
        """The time before the statement."""
        return {"begun": self.begun}

    @property
    def earlier(self) -> None:
        """Nothing."""

    @abstractmethod
    def rows(self, columns: Mapping[str, Column], low: Low, within: Range | None = None) -> Iterator[pl.DataFrame]:
        """Yield the rows from a cursor on, by cursor, with the column `NEWER`."""

    def ranges(self, low: Low, count: int) -> list[Range] | str:
        """Return the reason against ranges."""
        return self.whole


@dataclass(frozen=True)
class StatementCursor(PatientCursor, CursorSource):
    """A table read by a cursor column, by one statement of one connection.

    For types other than times, a statement begins at the highest cursor as of the last statement that was `disorder` ago.
    """

    reading: ClassVar[type[StatementSnapshot]]
    """The statement of the database."""

    @abstractmethod
    def described(self, connection: Any) -> TableDescription:
        """Return the description of the table."""

    @contextmanager
    def snapshot(self) -> Iterator[StatementSnapshot]:
        with self.server.connect() as connection:
            yield self.present(connection, self.described(connection))

    def present(self, connection: Any, table: TableDescription) -> StatementSnapshot:
        return self.reading(connection, table, time.time())

    def columns_of(self, table: TableDescription) -> dict[str, Column]:
        found = super().columns_of(table)
        if found[self.cursor].kind == FLOAT:
            raise InvalidValue(
                f"{self.title}: column '{self.cursor}' of type {found[self.cursor].type} cannot be a cursor: NaN has no place",
                hint="a cursor is a timestamp, a date, an exact number or text that grows with every change of a row",
            )
        return found

    @property
    def fields(self) -> Sequence[str]:
        """The names that columns are requested by."""
        return (*(self.options.columns or ()), self.cursor)
