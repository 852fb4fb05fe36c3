"""Reading a table of MySQL by a cursor column."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.connectors.mysql.columns import frame, read_as
from umbel.connectors.mysql.dividing import LARGE, Division
from umbel.connectors.mysql.reading import MySQLSource, literal, pieces
from umbel.connectors.mysql.server import MySQLDescription, MySQLServer, describe, may, quote, rows
from umbel.connectors.polled_cursor import Poll
from umbel.connectors.sql.columns import DATE, INT, TIMES, Column
from umbel.connectors.sql.cursor import NEWER, CursorSource, Low
from umbel.connectors.sql.ranges import Range
from umbel.connectors.sql.server import TableDescription
from umbel.errors import InvalidValue

if TYPE_CHECKING:
    from pymysql import Connection

OPEN = "SELECT trx_id FROM information_schema.INNODB_TRX"
INDEXED = """SELECT 1 FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND COLUMN_NAME = %s
             AND SEQ_IN_INDEX = 1 AND INDEX_TYPE = 'BTREE' AND SUB_PART IS NULL LIMIT 1"""
STALE = 0.15
"""Seconds for which the server may answer `OPEN` with what it answered before."""
LONGEST_WAIT = 3.0
"""Seconds for which the first statement waits for the end of transactions."""


@dataclass(frozen=True)
class MySQLSnapshot:
    """The table as one statement reads it.

    Args:
        connection: to the server.
        table: the description of the table.
        before: the transactions that were open before the statement.
        begun: when these were read, None if they are not needed.
        earlier: the highest cursor before the first statement, with the transactions that were open then.
    """

    connection: Connection[Any]
    table: MySQLDescription
    before: Sequence[str]
    begun: float | None
    earlier: Poll | None = None

    @property
    def mark(self) -> Poll:
        """The transactions that were open before the statement, and those that are after it."""
        if self.begun is None:
            return {"before": [], "after": []}
        time.sleep(max(0.0, self.begun + STALE - time.monotonic()))
        return {"before": list(self.before), "after": _open(self.connection)}

    def rows(self, columns: Mapping[str, Column], low: Low, within: Range | None = None) -> Iterator[pl.DataFrame]:
        """Yield the rows from a cursor on, by cursor, with the column `NEWER`."""
        cursor = quote(low.cursor.name)
        newer = "1" if low.high is None else f"{cursor} > {literal(self.connection, low.cursor, low.high)}"
        names = ", ".join(read_as(column, quote(name)) for name, column in columns.items())
        statement = (  # names are quoted, values are literals
            f"SELECT {names}, {newer} FROM {self.table.name} WHERE {self._conditions(cursor, low, within)} ORDER BY {cursor}"  # noqa: S608  names are quoted
        )
        read = [*columns.values(), Column(NEWER, INT, is_array=False, type="int")]
        for each in pieces(self.connection, statement):
            yield frame(each, read).with_columns(pl.col(NEWER) == "1")

    def ranges(self, low: Low, count: int) -> list[Range] | str:
        """Return the ranges of cursors, by the estimates of the server's optimizer.

        Rows above the highest cursor of now are left to the next statement: ranges are read at different instants.
        """
        cursor, name = quote(low.cursor.name), low.cursor.name
        condition = self._condition(cursor, low)
        dividing = Division(self.connection, self.table.name, low.cursor, condition)
        if (size := dividing.estimated()) < LARGE:
            return f"the table has less than {LARGE:,} rows"
        if not rows(self.connection, INDEXED, self.table.database, self.table.table, name):
            return f"there is no index on {name}"
        return dividing.ranges(size, count)

    def _conditions(self, cursor: str, low: Low, within: Range | None) -> str:
        found = [self._condition(cursor, low)]
        if within is not None:
            found.append(
                f"{cursor} {'<=' if within.is_last else '<'} {literal(self.connection, low.cursor, within.high)}"
            )
            if within.low is not None:
                found.append(f"{cursor} >= {literal(self.connection, low.cursor, within.low)}")
        return " AND ".join(found)

    def _condition(self, cursor: str, low: Low) -> str:
        is_time = low.cursor.kind in TIMES
        if is_time:
            real = f"TO_DAYS({cursor}) IS NOT NULL"  # no 0000-00-00, and no 2024-00-01
            return real if low.start is None else f"{cursor} >= {_instant(low)} AND {real}"
        return (
            f"{cursor} IS NOT NULL"
            if low.start is None
            else f"{cursor} >= {literal(self.connection, low.cursor, low.start)}"
        )


def _open(connection: Connection[Any], until_ended: Sequence[str] = ()) -> list[str]:
    """Return the open transactions; wait a little for the end of some."""
    deadline = time.monotonic() + LONGEST_WAIT
    while True:
        found = [row[0] for row in rows(connection, OPEN)]
        if {*until_ended}.isdisjoint(found) or time.monotonic() > deadline:
            return found
        time.sleep(STALE)


def _instant(low: Low) -> str:
    """Return the first instant to be read, as a literal."""
    first: datetime = low.begin.replace(tzinfo=None)
    return f"'{first.date().isoformat()}'" if low.cursor.kind == DATE else f"'{first.isoformat(' ')}'"


@dataclass(frozen=True)
class MySQLCursor(MySQLSource, CursorSource):
    """A table read by a cursor column.

    For types other than times, a statement begins at the highest cursor as of the last statement since which all transactions
    have ended that were open then.
    """

    server: MySQLServer

    def columns_of(self, table: TableDescription) -> dict[str, Column]:
        found = super().columns_of(table)
        if isinstance(table, MySQLDescription) and self.cursor in table.unordered:
            raise InvalidValue(
                f"{self.title}: column '{self.cursor}' of type {found[self.cursor].type} cannot be a cursor: "
                "different values of it compare as equal, or in another order than they have",
                hint="a cursor that is text needs a collation such as utf8mb4_bin",
            )
        return found

    def examine(self) -> None:
        with self.server.connect() as connection:
            columns = self.columns_of(table := describe(connection, self.title, self.table))
            names = ", ".join(quote(name) for name in columns)
            rows(connection, f"SELECT {names} FROM {table.name} LIMIT 0")  # noqa: S608  names are quoted
            self._check_rights(connection, columns[self.cursor])

    def _check_rights(self, connection: Connection[Any], cursor: Column) -> None:
        if cursor.kind in TIMES or may(connection, "PROCESS"):
            return
        raise InvalidValue(  # MariaDB would show no transactions then, as if there were none
            f"{self.title}: with the cursor '{self.cursor}', which is no time, rows that commit late are found only by a user "
            "who may see open transactions",
            hint=f"GRANT PROCESS ON *.* TO {self.server.login}; or take a cursor of type timestamp or datetime",
        )

    @contextmanager
    def snapshot(self) -> Iterator[MySQLSnapshot]:
        with self.server.connect() as connection:
            table = describe(connection, self.title, self.table)
            if self.cursor not in table.columns or table.columns[self.cursor].kind in TIMES:
                yield MySQLSnapshot(connection, table, (), None)
                return
            self._check_rights(connection, table.columns[self.cursor])
            earlier = None if self.stage.state().get("polls") else self._earlier(connection, table)
            before = _open(connection, () if earlier is None else earlier["after"])
            yield MySQLSnapshot(connection, table, before, time.monotonic(), earlier)

    def _earlier(self, connection: Connection[Any], table: MySQLDescription) -> Poll | None:
        """Return the highest cursor with the open transactions; None without an index.

        The second statement begins there, if these have ended by the first one: that reads all of the table.
        """
        if not rows(connection, INDEXED, table.database, table.table, self.cursor):
            return None
        cursor = quote(self.cursor)
        high = read_as(table.columns[self.cursor], cursor)
        found = rows(
            connection,
            f"SELECT {high} FROM {table.name} WHERE {cursor} IS NOT NULL ORDER BY {cursor} DESC LIMIT 1",  # noqa: S608  names are quoted
        )
        if not found:
            return None
        time.sleep(STALE)
        return {"before": [], "after": _open(connection), "high": found[0][0], "part": 0}

    def present(self, connection: Any, table: TableDescription) -> MySQLSnapshot:
        assert isinstance(table, MySQLDescription)
        return MySQLSnapshot(connection, table, (), None)

    def closed(self, polls: Sequence[Poll]) -> int | None:
        """Return the place of the newest statement that the last one closed.

        All transactions that were open at a closed statement had ended at the last one, which so has read their rows.
        """
        open_at_last = {*polls[-1]["before"]}
        found = [at for at, each in enumerate(polls[:-1]) if open_at_last.isdisjoint(each["after"])]
        return found[-1] if found else None
