"""Redshift: tables, read by a cursor column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from umbel.connectors.credentials import check_credential
from umbel.connectors.splits import SplitSource
from umbel.connectors.table import CursorTable
from umbel.definitions.arguments import DataSource, ReadOptions
from umbel.definitions.secret import Credential
from umbel.errors import InvalidAttribute

if TYPE_CHECKING:
    from umbel.connectors.redshift.server import RedshiftServer


@dataclass(frozen=True, kw_only=True)
class RedshiftTable(CursorTable):
    """One table of a Redshift database."""

    def reader_of(self, options: ReadOptions) -> SplitSource:
        from umbel.connectors.redshift.cursor import RedshiftCursor
        from umbel.connectors.redshift.server import driver

        assert isinstance(self.source, Redshift)
        assert self.cursor is not None
        self.check_options(options)
        driver()
        for each in (self.source.username, self.source.password):
            check_credential(each, self.title)
        return RedshiftCursor(self._server, self.table, options, self.cursor)

    @property
    def _server(self) -> RedshiftServer:
        from umbel.connectors.redshift.server import RedshiftServer

        assert isinstance(self.source, Redshift)
        return RedshiftServer.of_source(self.title, self.source)


@dataclass(frozen=True, kw_only=True)
class Redshift(DataSource):
    """A Redshift database.

    Args:
        db_name: of the database.
        host: the endpoint of the cluster or the workgroup.
        schema: of the tables.
        port: of the server.
        s3_access_role_arn: the role of AWS that gets temporary passwords of the database; or
        username: the user, and
        password: the user's password.
    """

    db_name: str
    host: str
    schema: str
    port: int = 5439
    s3_access_role_arn: str | None = None
    username: Credential | None = None
    password: Credential | None = field(default=None, repr=False)

    needs: ClassVar[str] = "a table and a cursor: .table(...)"

    def __post_init__(self) -> None:
        user = (self.username is not None, self.password is not None)
        if self.s3_access_role_arn is not None and any(user):
            raise InvalidAttribute(
                f"Redshift '{self.name}': give s3_access_role_arn or username and password, not both",
                hint="leave one of them out",
            )
        if self.s3_access_role_arn is None and not all(user):
            raise InvalidAttribute(
                f"Redshift '{self.name}': give either s3_access_role_arn or username and password",
                hint="s3_access_role_arn=..., or username=... and password=...",
            )

    def table(self, table_name: str, cursor: str | None = None) -> RedshiftTable:
        """Return the connector for one table.

        Args:
            table_name: its name; `schema.name` for another schema than the source's.
            cursor: the column that increases with every change.
        """
        return RedshiftTable(source=self, table=table_name, cursor=cursor)
