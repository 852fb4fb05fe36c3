"""Reading a table of Redshift by a cursor column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from umbel.connectors.redshift.columns import COMPARABLE, cursor_literal, read_as, staged, typed
from umbel.connectors.redshift.server import RedshiftDescription, RedshiftServer, describe
from umbel.connectors.sql.columns import DATE, TEXT, TIMES, Column
from umbel.connectors.sql.cursor import NEWER, Low
from umbel.connectors.sql.ranges import Range
from umbel.connectors.sql.server import TableDescription
from umbel.connectors.sql.statement import StatementCursor, StatementSnapshot
from umbel.errors import InvalidValue
from umbel.types.dtype import DType

FETCH, AT_ONCE = 1000, 20
"""Rows of one answer, which is the most that a cluster of one node gives, and answers that are staged together."""


@dataclass(frozen=True)
class RedshiftStatement(StatementSnapshot):
    """A table as one statement reads it."""

    table: RedshiftDescription

    def rows(self, columns: Mapping[str, Column], low: Low, within: Range | None = None) -> Iterator[pl.DataFrame]:
        """Yield the rows from a cursor on, by cursor, with the column `NEWER`."""
        cursor = self.table.quoted(low.cursor.name)
        newer = "TRUE" if low.high is None else f"{cursor} > {cursor_literal(low.cursor, low.high)}"
        start = "" if low.start is None else f" AND {cursor} >= {_start(low)}"
        chosen = ", ".join(read_as(column, self.table.quoted(name)) for name, column in columns.items())
        statement = (  # by `t`, as a result is named like the column that it is cast from, and would be what is ordered by
            f"SELECT {chosen}, {newer} FROM {self.table.name} t WHERE {cursor} IS NOT NULL{start} ORDER BY t.{cursor}"  # noqa: S608
        )
        with self.connection.cursor() as client:
            client.execute(f"DECLARE umbel CURSOR FOR {statement}")
            while rows := self._fetched(client):
                *values, is_newer = map(list, zip(*rows, strict=True))
                found = [staged(each, column) for each, column in zip(values, columns.values(), strict=True)]
                yield pl.DataFrame([*found, pl.Series(NEWER, is_newer, dtype=pl.Boolean)])

    def _fetched(self, client: Any) -> list[Sequence[Any]]:
        """Return the next rows; none at the end."""
        rows = list[Sequence[Any]]()
        for _ in range(AT_ONCE):
            found = client.execute(f"FETCH FORWARD {FETCH} FROM umbel").fetchall()
            rows += found
            if len(found) < FETCH:
                break
        return rows


@dataclass(frozen=True)
class RedshiftCursor(StatementCursor):
    """A table read by a cursor column."""

    server: RedshiftServer

    reading: ClassVar[type[StatementSnapshot]] = RedshiftStatement

    def typed(self, text: pl.Series, column: Column, requested: DType | None) -> pl.Series:
        return typed(text, column, requested)

    def described(self, connection: Any) -> RedshiftDescription:
        return describe(connection, self.server, self.table, None if self.options.columns is None else self.fields)

    def columns_of(self, table: TableDescription) -> dict[str, Column]:
        found = super().columns_of(table)
        cursor = found[self.cursor]
        if cursor.kind == TEXT and cursor.type not in COMPARABLE:
            raise InvalidValue(
                f"{self.title}: column '{self.cursor}' of type {cursor.type} cannot be a cursor",
                hint="a cursor is a timestamp, a date, an exact number or text that grows with every change of a row",
            )
        return found

    def examine(self) -> None:
        with self.server.connect() as connection:
            columns = self.columns_of(table := self.described(connection))
            chosen = ", ".join(read_as(column, table.quoted(name)) for name, column in columns.items())
            connection.cursor().execute(f"SELECT {chosen} FROM {table.name} LIMIT 0")  # noqa: S608  names are quoted


def _start(low: Low) -> str:
    """Return the first cursor to be read, as an expression."""
    if low.cursor.kind not in TIMES:
        return cursor_literal(low.cursor, str(low.start))
    first = low.begin.replace(tzinfo=None)
    return cursor_literal(low.cursor, first.date().isoformat() if low.cursor.kind == DATE else first.isoformat(" "))
