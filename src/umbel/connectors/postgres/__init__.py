"""Postgres: tables, read by a cursor column or by logical replication."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from umbel.connectors.splits import SplitSource
from umbel.connectors.table import TableConnector
from umbel.definitions.arguments import DataSource, Delivery, ReadOptions, refuse_options, require_incremental
from umbel.definitions.secret import Credential
from umbel.errors import NotSupported

if TYPE_CHECKING:
    from umbel.connectors.postgres.server import Server
    from umbel.connectors.sinks import SinkWriter, WriteOptions


@dataclass(frozen=True, kw_only=True)
class SQLSource(DataSource):
    """A database server with a login.

    Args:
        host: of the server.
        db_name: of the database.
        username: the user.
        password: the user's password.
        jdbc_params: further connection parameters.
    """

    host: str
    db_name: str
    username: Credential
    password: Credential = field(repr=False)
    jdbc_params: str | None = None

    needs: ClassVar[str] = "a table and a cursor: .table(...)"

    def table(self, table_name: str, cursor: str | None = None) -> TableConnector:
        """Return the connector for one table.

        Args:
            table_name: its name.
            cursor: the column that increases with every change.
        """
        return TableConnector(source=self, table=table_name, cursor=cursor)


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
class PostgresTable(TableConnector):
    """A table of a Postgres database."""

    def check_source(self, cdc: str) -> None:
        if cdc != "native":
            super().check_source(cdc)

    def check_sink(self, delivery: Delivery) -> None:
        subject = f"sink to {self.title}, table '{self.table}'"
        refuse_options(subject, cdc=delivery.cdc, cursor=self.cursor)
        require_incremental(subject, delivery.how, optional=True)

    def check_writer(self) -> None:
        """Refuse a table where the client library is missing, or a credential cannot be read."""
        from umbel.connectors.credentials import check_credential
        from umbel.connectors.postgres.server import driver, parameters_of

        assert isinstance(self.source, Postgres)
        driver()
        for each in (self.source.username, self.source.password):
            check_credential(each, self.title)
        parameters_of(self.title, self.source.jdbc_params)

    def writer_of(self, options: WriteOptions) -> SinkWriter:
        from umbel.connectors.postgres.sink import TableWriter

        return TableWriter(self._server, self.table, options)

    def reader_of(self, options: ReadOptions) -> SplitSource:
        from umbel.connectors.postgres.cursor import CursorSource
        from umbel.connectors.postgres.replication import ReplicatedSource

        if options.cdc == "native" and self.cursor is not None:
            raise NotSupported(
                f"{self.title}, table '{self.table}': cdc 'native' reads all changes of a table, and it has a cursor",
                hint='.table(name) without a cursor; or cdc="upsert" for a keyed dataset, "append" for a keyless one',
            )
        self.check_writer()
        if self.cursor is None:
            return ReplicatedSource(self._server, self.table, options)
        return CursorSource(self._server, self.table, options, self.cursor)

    @property
    def _server(self) -> Server:
        from umbel.connectors.postgres.server import Server

        assert isinstance(self.source, Postgres)
        return Server(
            title=self.title,
            host=self.source.host,
            port=self.source.port,
            database=self.source.db_name,
            user=self.source.username,
            password=self.source.password,
            parameters=self.source.jdbc_params,
        )
