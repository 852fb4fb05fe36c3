"""Postgres: tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umbel.connectors.declared import DataSource
from umbel.connectors.secret import Credential
from umbel.connectors.table import TableConnector


@dataclass(frozen=True, kw_only=True)
class SQLSource(DataSource):
    """A database server one logs in to.

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
            cursor: the column that grows with every change.
        """
        return TableConnector(source=self, table=table_name, cursor=cursor)


@dataclass(frozen=True, kw_only=True)
class Postgres(SQLSource):
    """A Postgres database.

    Args:
        port: of the server.
    """

    port: int = 5432
