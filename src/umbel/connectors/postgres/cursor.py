"""Reading a table of Postgres by a cursor column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.connectors.postgres.copying import PostgresSource, parse, pieces
from umbel.connectors.postgres.server import PostgresDescription, describe
from umbel.connectors.sql.columns import TIMES, Column
from umbel.connectors.sql.cursor import NEWER, CursorSource, Low, Poll

if TYPE_CHECKING:
    import psycopg

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

    def rows(self, columns: Mapping[str, Column], low: Low) -> Iterator[pl.DataFrame]:
        """Yield the rows from a cursor on, by cursor, with the column `NEWER`."""
        from psycopg import sql

        cursor, high = sql.Identifier(low.cursor.name), sql.Literal(low.high)
        newer = sql.SQL("true") if low.high is None else sql.SQL("{} > {}").format(cursor, high)
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        select = sql.SQL("SELECT {}, {} FROM {} WHERE {} ORDER BY {}").format(
            names, newer, sql.SQL(self.table.name), _condition(low), cursor
        )
        with (
            self.connection.cursor() as client,
            client.copy(sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(select)) as copy,
        ):
            for data in pieces(copy):
                yield parse(data, (*columns, NEWER)).with_columns(pl.col(NEWER) == "t")


@dataclass(frozen=True)
class PostgresCursor(PostgresSource, CursorSource):
    """A table read by a cursor column.

    For types other than times, a statement begins at the highest cursor as of the last statement since which all transactions
    have ended that were open then.
    """

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

    def closed(self, polls: Sequence[Poll]) -> int | None:
        """Return the place of the newest statement that the last one closed.

        All transactions that were open at a closed statement had ended at the last one, which so has read their rows.
        """
        found = [at for at, each in enumerate(polls) if int(each["next"]) <= int(polls[-1]["oldest"])]
        return found[-1] if found else None


def _condition(low: Low) -> Any:
    """Return the SQL condition on a cursor column."""
    from psycopg import sql

    cursor, is_time = sql.Identifier(low.cursor.name), low.cursor.kind in TIMES
    if low.start is None:
        return sql.SQL("isfinite({})" if is_time else "{} IS NOT NULL").format(cursor)
    if not is_time:
        return sql.SQL("{} >= {}").format(cursor, sql.Literal(low.start))
    kind, back = sql.Identifier(low.cursor.type), sql.Literal(f"{low.lookback} microseconds")
    first = sql.SQL("({start}::{kind} - {back}::interval)::{kind}").format(
        start=sql.Literal(low.start), kind=kind, back=back
    )
    return sql.SQL("{cursor} >= {first} AND isfinite({cursor})").format(cursor=cursor, first=first)
