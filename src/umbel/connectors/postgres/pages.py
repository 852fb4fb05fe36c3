"""The first copy of a table in one snapshot, by ranges of pages.

Rows come in the order of the pages, as one connection reads them; no index is needed, and no key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.connectors.postgres.copying import parse, pieces
from umbel.connectors.postgres.cursor import LARGE, PAGE, RANGE_BYTES
from umbel.connectors.postgres.server import PostgresDescription, Server, table_bytes
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.following import inserted
from umbel.connectors.sql.ranges import MOST_RANGES, Range, ranges_between

if TYPE_CHECKING:
    import psycopg

OLDEST = 140000
"""The version of Postgres from which on it finds a range of pages without reading all of them."""


def page_ranges(connection: psycopg.Connection[Any], table: PostgresDescription, count: int) -> list[Range]:
    """Return the ranges of a table's pages; none if one connection should read all rows.

    Args:
        connection: its transaction may be later than the snapshot.
        table: the description of the table.
        count: of the connections.
    """
    size = table_bytes(connection, table.oid)
    subclasses = connection.execute("SELECT 1 FROM pg_inherits WHERE inhparent = %s::oid LIMIT 1", [table.oid])
    if (
        count < 2
        or size < LARGE
        or connection.info.server_version < OLDEST
        or table.kind != "r"
        or subclasses.fetchone()
    ):
        return []
    pages, parts = size // PAGE, min(MOST_RANGES, max(2 * count, size // RANGE_BYTES))
    return ranges_between([f"({pages * part // parts},0)" for part in range(1, parts)], "")


@dataclass(frozen=True)
class PageRanges:
    """Reads ranges of pages.

    Args:
        server: with a login that no vault is needed for.
        table: its quoted name.
        columns: those to read.
        snapshot: the name of the exported snapshot.
    """

    server: Server
    table: str
    columns: Mapping[str, Column]
    snapshot: str | None

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """Connect for a block, in the snapshot."""
        from psycopg import sql

        with self.server.connect() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(self.snapshot)))
            yield connection

    def parts(self, connection: Any, each: Range | None) -> Iterator[tuple[pl.DataFrame, dict[str, Any]]]:
        """Yield the rows of a range, or of all pages."""
        from psycopg import sql

        names = sql.SQL(", ").join(map(sql.Identifier, self.columns))
        low = "" if each is None or each.low is None else f"ctid >= '{each.low}'"
        high = "" if each is None or each.is_last else f"ctid < '{each.high}'"
        condition = " AND ".join(filter(None, (low, high))) or "true"
        select = sql.SQL("SELECT {} FROM {} WHERE {}").format(names, sql.SQL(self.table), sql.SQL(condition))
        with (
            connection.cursor() as cursor,
            cursor.copy(sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(select)) as copy,
        ):
            for data in pieces(copy):
                yield inserted(parse(data, tuple(self.columns))), {}
