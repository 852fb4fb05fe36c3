"""Postgres: tables, read by a cursor column or by logical replication."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.connectors.splits import SplitSource
from umbel.connectors.sql import ChangingTable, SQLSource
from umbel.definitions.arguments import ReadOptions


@dataclass(frozen=True, kw_only=True)
class Postgres(SQLSource):
    """A Postgres database.

    Args:
        port: of the server.
    """

    port: int = 5432

    def table(self, table_name: str, cursor: str | None = None) -> PostgresTable:
        """Return the connector for one table.

        Args:
            table_name: its name, with its schema unless that is on the search path: `shop.orders`.
            cursor: the column that increases with every change; None for `cdc="native"`.
        """
        return PostgresTable(source=self, table=table_name, cursor=cursor)


@dataclass(frozen=True, kw_only=True)
class PostgresTable(ChangingTable):
    """A table of a Postgres database."""

    def reader_of(self, options: ReadOptions) -> SplitSource:
        from umbel.connectors.postgres.cursor import PostgresCursor
        from umbel.connectors.postgres.replication import ReplicatedSource
        from umbel.connectors.postgres.server import Server, driver

        assert isinstance(self.source, Postgres)
        driver()
        self.check_options(options)
        server = Server.of(self.title, self.source, self.source.port)
        if self.cursor is None:
            return ReplicatedSource(server, self.table, options)
        return PostgresCursor(server, self.table, options, self.cursor)
