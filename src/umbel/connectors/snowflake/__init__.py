"""Snowflake: tables, read by a cursor column, or written to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from umbel.connectors.credentials import check_credential
from umbel.connectors.splits import SplitSource
from umbel.connectors.table import CursorTable
from umbel.definitions.arguments import (
    SAME_PLACE,
    DataSource,
    Delivery,
    ReadOptions,
    refuse_options,
    require_incremental,
)
from umbel.definitions.secret import Credential
from umbel.errors import InvalidType, InvalidValue

if TYPE_CHECKING:
    from umbel.connectors.sinks import WriteOptions
    from umbel.connectors.snowflake.sink import SnowflakeWriter


@dataclass(frozen=True, kw_only=True)
class SnowflakeConnector(CursorTable):
    """One table."""

    def check_source(self, cdc: str) -> None:
        try:
            super().check_source(cdc)
        except InvalidType as error:
            raise InvalidValue(error.message, hint=error.hint) from error

    def check_sink(self, delivery: Delivery) -> None:
        owner = f"sink to {self.title}"
        refuse_options(owner, cdc=delivery.cdc, cursor=self.cursor)
        require_incremental(owner, delivery.how)

    def check_writer(self) -> None:
        """Refuse a table where the client library is missing, or a credential cannot be read."""
        from umbel.connectors.snowflake.server import driver

        driver()
        for each in (self._account.username, self._account.password):
            check_credential(each, self.title)

    def examine_writer(self, options: WriteOptions) -> None:
        self.writer_of(options).examine()

    def writer_of(self, options: WriteOptions) -> SnowflakeWriter:
        from umbel.connectors.sinks import RowsRefused
        from umbel.connectors.snowflake.server import SnowflakeServer
        from umbel.connectors.snowflake.sink import RIGHTS, SnowflakeWriter

        server = SnowflakeServer.of_account(self.title, self._account, rights=RIGHTS, of_values=RowsRefused)
        return SnowflakeWriter(server, self.table, options)

    def reader_of(self, options: ReadOptions) -> SplitSource:
        from umbel.connectors.snowflake.columns import same_name, unquoted
        from umbel.connectors.snowflake.cursor import SnowflakeCursor
        from umbel.connectors.snowflake.server import SnowflakeServer

        assert self.cursor is not None
        self.check_options(options)
        self.check_writer()
        server = SnowflakeServer.of_account(self.title, self._account)
        cursor = next((name for name in options.columns or () if same_name(name, self.cursor)), unquoted(self.cursor))
        return SnowflakeCursor(server, self.table, options, cursor)

    @property
    def _account(self) -> Snowflake:
        assert isinstance(self.source, Snowflake)
        return self.source


@dataclass(frozen=True, kw_only=True)
class Snowflake(DataSource):
    """A Snowflake database.

    Args:
        account: the account's identifier, such as `organization-account`.
        db_name: of the database.
        username: the user.
        password: the user's password.
        warehouse: the virtual warehouse that runs the queries.
        schema: of the tables.
        role: the role the user acts in.
    """

    account: str
    db_name: str
    username: Credential
    password: Credential = field(repr=False)
    warehouse: str = field(metadata=SAME_PLACE)
    schema: str
    role: str = field(metadata=SAME_PLACE)

    needs: ClassVar[str] = "a table and a cursor: .table(...)"

    def table(self, table_name: str, cursor: str | None = None) -> SnowflakeConnector:
        """Return the connector for one table.

        Args:
            table_name: its name, as in SQL: upper and lower case are the same unless it is in quotes.
            cursor: the column that increases with every change; only for a source.
        """
        return SnowflakeConnector(source=self, table=table_name, cursor=cursor)
