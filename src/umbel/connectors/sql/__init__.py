"""Databases with tables: what their sources have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from umbel.connectors.table import TableConnector
from umbel.definitions.arguments import SAME_PLACE, DataSource, ReadOptions
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
    jdbc_params: str | None = field(default=None, metadata=SAME_PLACE)

    needs: ClassVar[str] = "a table and a cursor: .table(...)"

    def table(self, table_name: str, cursor: str | None = None) -> TableConnector:
        """Return the connector for one table.

        Args:
            table_name: its name.
            cursor: the column that increases with every change.
        """
        return TableConnector(source=self, table=table_name, cursor=cursor)


@dataclass(frozen=True, kw_only=True)
class ChangingTable(TableConnector):
    """A table that can be read by a cursor, or by its changes."""

    def check_source(self, cdc: str) -> None:
        if cdc != "native":
            super().check_source(cdc)

    def check_options(self, options: ReadOptions) -> None:
        """Refuse a login that cannot be used, and a cursor beside all changes."""
        if options.cdc == "native" and self.cursor is not None:
            raise NotSupported(
                f"{self.title}, table '{self.table}': cdc 'native' reads all changes of a table, and it has a cursor",
                hint='.table(name) without a cursor; or cdc="upsert" for a keyed dataset, "append" for a keyless one',
            )
        self.check_login()

    def check_login(self) -> None:
        """Refuse a login that cannot be read."""
        from umbel.connectors.credentials import check_credential

        assert isinstance(self.source, SQLSource)
        for each in (self.source.username, self.source.password):
            check_credential(each, self.title)
