"""MySQL and MariaDB: tables, read by a cursor column or by the binary log."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.connectors.splits import SplitSource
from umbel.connectors.sql import ChangingTable, SQLSource
from umbel.definitions.arguments import ReadOptions


@dataclass(frozen=True, kw_only=True)
class MySQL(SQLSource):
    """A MySQL or MariaDB database.

    Args:
        port: of the server.
    """

    port: int = 3306

    def table(self, table_name: str, cursor: str | None = None) -> MySQLTable:
        """Return the connector for one table.

        Args:
            table_name: its name, with its database unless that is `db_name`: `shop.orders`.
            cursor: the column that increases with every change; None for `cdc="native"`.
        """
        return MySQLTable(source=self, table=table_name, cursor=cursor)


@dataclass(frozen=True, kw_only=True)
class MySQLTable(ChangingTable):
    """A table of a MySQL or MariaDB database."""

    def reader_of(self, options: ReadOptions) -> SplitSource:
        from umbel.connectors.mysql.cursor import MySQLCursor
        from umbel.connectors.mysql.replication import BinlogSource
        from umbel.connectors.mysql.server import MySQLServer, driver

        assert isinstance(self.source, MySQL)
        driver()
        self.check_options(options)
        server = MySQLServer.of(self.title, self.source, self.source.port)
        if self.cursor is None:
            return BinlogSource(server, self.table, options)
        return MySQLCursor(server, self.table, options, self.cursor)
