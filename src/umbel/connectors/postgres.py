"""Postgres: tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umbel.connectors.table import TableConnector
from umbel.definitions.arguments import DataSource
from umbel.definitions.secret import Credential


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
    password: Credential
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
