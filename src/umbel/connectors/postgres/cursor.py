"""Reading a table of Postgres by a cursor column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.connectors.polled_cursor import Poll
from umbel.connectors.postgres.copying import PostgresSource, parse, pieces
from umbel.connectors.postgres.server import PostgresDescription, Server, describe, table_bytes
from umbel.connectors.sql.columns import FLOAT, NUMERIC, TIMES, Column
from umbel.connectors.sql.cursor import NEWER, CursorSource, Low
from umbel.connectors.sql.ranges import MOST_RANGES, Range, ranges_between
from umbel.connectors.sql.server import TableDescription

if TYPE_CHECKING:
    import psycopg

LARGE, RANGE_BYTES, PAGE = 64 << 20, 16 << 20, 8192
"""Bytes of a table from which on it is first read in ranges, of a range, and of a page."""
INDEXED = """SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
             WHERE i.indrelid = %s::oid AND a.attname = %s AND i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree'"""
SNAPSHOT = "SELECT txid_snapshot_xmin(txid_current_snapshot())::text, txid_snapshot_xmax(txid_current_snapshot())::text"


@dataclass(frozen=True)
class PostgresSnapshot:
    """One state of a table, in a transaction.

    Args:
        connection: in the transaction.
        table: the description of the table.
        mark: the oldest transaction that was open, and the next one to begin.
    """

    connection: psycopg.Connection[Any]
    table: PostgresDescription
    mark: Poll

    @property
    def earlier(self) -> None:
        """Nothing."""

    def rows(self, columns: Mapping[str, Column], low: Low, within: Range | None = None) -> Iterator[pl.DataFrame]:
        """Yield the rows from a cursor on, by cursor, with the column `NEWER`."""
        from psycopg import sql

        cursor, high = sql.Identifier(low.cursor.name), sql.Literal(low.high)
        newer = sql.SQL("true") if low.high is None else sql.SQL("{} > {}").format(cursor, high)
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        select = sql.SQL("SELECT {}, {} FROM {} WHERE {} ORDER BY {}").format(
            names, newer, sql.SQL(self.table.name), sql.SQL(" AND ").join(_conditions(low, within)), cursor
        )
        with (
            self.connection.cursor() as client,
            client.copy(sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(select)) as copy,
        ):
            for data in pieces(copy):
                yield parse(data, (*columns, NEWER)).with_columns(pl.col(NEWER) == "t")

    def ranges(self, low: Low, count: int) -> list[Range] | str:
        """Return the ranges of cursors, by a sample of the table's pages.

        Rows above the highest cursor of now are left to the next statement: ranges are read at different instants.
        """
        size = table_bytes(self.connection, self.table.oid)
        if size < LARGE:
            return f"the table is smaller than {LARGE >> 20} MiB"
        if not self.connection.execute(INDEXED, [self.table.oid, low.cursor.name]).fetchone():
            return f"there is no index on {low.cursor.name}"
        bounds = self._sampled(low, size, min(MOST_RANGES, max(2 * count, size // RANGE_BYTES)))
        found = self._select("SELECT max({cursor})::text FROM {table} WHERE {low}", low)
        self.connection.execute("COMMIT")  # so that the server can clean up meanwhile
        return ranges_between(bounds, found[0][0]) if bounds and found[0][0] is not None else "few cursors differ"

    def _sampled(self, low: Low, size: int, ranges: int) -> list[str]:
        """Return cursors that divide a sample of the table into equal parts."""
        percent = min(100.0, 100.0 * max(400, 2 * ranges) * PAGE / size)
        query = """SELECT each::text AS bound FROM (SELECT DISTINCT each FROM (
            SELECT {cursor} AS each, row_number() OVER (ORDER BY {cursor}) AS place, count(*) OVER () AS all_rows
            FROM {table} TABLESAMPLE SYSTEM ({percent}) WHERE {low}
        ) _ WHERE place % greatest(1, all_rows / {ranges}) = 0) _ ORDER BY each"""
        return [row[0] for row in self._select(query, low, percent=percent, ranges=ranges)]

    def _select(self, query: str, low: Low, **values: float) -> list[Any]:
        from psycopg import sql

        literals = {name: sql.Literal(value) for name, value in values.items()}
        names = {"cursor": sql.Identifier(low.cursor.name), "table": sql.SQL(self.table.name)}
        return self.connection.execute(sql.SQL(query).format(**names, low=_condition(low), **literals)).fetchall()


@dataclass(frozen=True)
class PostgresCursor(PostgresSource, CursorSource):
    """A table read by a cursor column.

    For types other than times, a statement begins at the highest cursor as of the last statement since which all transactions
    have ended that were open then.
    """

    server: Server

    def examine(self) -> None:
        with self.server.connect() as connection:
            self.columns_of(table := describe(connection, self.title, self.table))
            from psycopg import sql

            names = sql.SQL(", ").join(map(sql.Identifier, self.names(table, self.cursor)))
            connection.execute(sql.SQL("SELECT {} FROM {} LIMIT 0").format(names, sql.SQL(table.name)))

    @contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        with self.server.connect() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            table = describe(connection, self.title, self.table)
            oldest, next_one = connection.execute(SNAPSHOT).fetchone() or ("0", "0")
            yield PostgresSnapshot(connection, table, {"oldest": oldest, "next": next_one})

    def present(self, connection: Any, table: TableDescription) -> PostgresSnapshot:
        assert isinstance(table, PostgresDescription)
        return PostgresSnapshot(connection, table, {})

    def closed(self, polls: Sequence[Poll]) -> int | None:
        """Return the place of the newest statement that the last one closed.

        All transactions that were open at a closed statement had ended at the last one, which so has read their rows.
        """
        found = [at for at, each in enumerate(polls) if int(each["next"]) <= int(polls[-1]["oldest"])]
        return found[-1] if found else None


_THERE = dict.fromkeys((FLOAT, NUMERIC), "{}::text NOT IN ('NaN', 'Infinity', '-Infinity')")
"""The conditions by kind that a cursor has an order; NaN would be above all numbers, and hide the later ones."""


def _conditions(low: Low, within: Range | None) -> Iterator[Any]:
    """Yield the SQL conditions on a cursor column."""
    from psycopg import sql

    yield _condition(low)
    cursor = sql.Identifier(low.cursor.name)
    if within is not None:
        sign = sql.SQL("<=" if within.is_last else "<")
        yield sql.SQL("{} {} {}").format(cursor, sign, sql.Literal(within.high))
        if within.low is not None:
            yield sql.SQL("{} >= {}").format(cursor, sql.Literal(within.low))


def _condition(low: Low) -> Any:
    """Return the SQL condition on a cursor column."""
    from psycopg import sql

    cursor, is_time = sql.Identifier(low.cursor.name), low.cursor.kind in TIMES
    is_there = sql.SQL(_THERE.get(low.cursor.kind, "isfinite({})" if is_time else "{} IS NOT NULL")).format(cursor)
    if low.start is None:
        return is_there
    if not is_time:
        return sql.SQL("{} >= {} AND {}").format(cursor, sql.Literal(low.start), is_there)
    kind, back = sql.Identifier(low.cursor.type), sql.Literal(f"{low.lookback} microseconds")
    first = sql.SQL("({start}::{kind} - {back}::interval)::{kind}").format(
        start=sql.Literal(low.start), kind=kind, back=back
    )
    return sql.SQL("{cursor} >= {first} AND isfinite({cursor})").format(cursor=cursor, first=first)
