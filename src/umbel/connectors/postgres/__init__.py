"""Postgres: tables, read by a cursor column or by logical replication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from umbel.connectors.splits import SplitSource
from umbel.connectors.sql import ChangingTable, SQLSource
from umbel.definitions.arguments import Delivery, ReadOptions, refuse_options, require_incremental

if TYPE_CHECKING:
    from umbel.connectors.postgres.server import Server
    from umbel.connectors.sinks import SinkWriter, WriteOptions


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

    def check_sink(self, delivery: Delivery) -> None:
        subject = f"sink to {self.title}, table '{self.table}'"
        refuse_options(subject, cdc=delivery.cdc, cursor=self.cursor)
        require_incremental(subject, delivery.how, optional=True)

    def check_writer(self) -> None:
        """Refuse a table where the client library is missing, or a credential cannot be read."""
        from umbel.connectors.postgres.server import driver

        driver()
        self.check_login()
        _ = self._server

    def writer_of(self, options: WriteOptions) -> SinkWriter:
        from umbel.connectors.postgres.sink import TableWriter

        return TableWriter(self._server, self.table, options)

    def examine_writer(self, options: WriteOptions) -> None:
        from umbel.connectors.postgres.sink import TableWriter

        TableWriter(self._server, self.table, options).examine()

    def reader_of(self, options: ReadOptions) -> SplitSource:
        from umbel.connectors.postgres.cursor import PostgresCursor
        from umbel.connectors.postgres.replication import ReplicatedSource

        self.check_options(options)
        self.check_writer()
        if self.cursor is None:
            return ReplicatedSource(self._server, self.table, options)
        return PostgresCursor(self._server, self.table, options, self.cursor)

    @property
    def _server(self) -> Server:
        from umbel.connectors.postgres.server import Server

        assert isinstance(self.source, Postgres)
        return Server.of(self.title, self.source, self.source.port)
