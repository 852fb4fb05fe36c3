"""Postgres: tables, read by a cursor column or by logical replication."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from umbel.connectors.splits import SplitSource
from umbel.connectors.table import TableConnector
from umbel.definitions.arguments import DataSource, ReadOptions
from umbel.definitions.secret import Credential
from umbel.errors import NotSupported


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

    def reader_of(self, options: ReadOptions) -> SplitSource:
        from umbel.connectors.credentials import check_credential
        from umbel.connectors.postgres.cursor import CursorSource
        from umbel.connectors.postgres.replication import ReplicatedSource
        from umbel.connectors.postgres.server import Server, driver, parameters_of

        assert isinstance(self.source, Postgres)
        if options.cdc == "native" and self.cursor is not None:
            raise NotSupported(
                f"{self.title}, table '{self.table}': cdc 'native' reads all changes of a table, and it has a cursor",
                hint='.table(name) without a cursor; or cdc="upsert" for a keyed dataset, "append" for a keyless one',
            )
        driver()
        for each in (self.source.username, self.source.password):
            check_credential(each, self.title)
        parameters_of(self.title, self.source.jdbc_params)
        server = Server(
            title=self.title,
            host=self.source.host,
            port=self.source.port,
            database=self.source.db_name,
            user=self.source.username,
            password=self.source.password,
            parameters=self.source.jdbc_params,
        )
        if self.cursor is None:
            return ReplicatedSource(server, self.table, options)
        return CursorSource(server, self.table, options, self.cursor)
