"""Redshift: tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umbel.connectors.table import TableConnector
from umbel.definitions.arguments import DataSource
from umbel.definitions.secret import Credential
from umbel.errors import InvalidAttribute


@dataclass(frozen=True, kw_only=True)
class Redshift(DataSource):
    """A Redshift database.

    Args:
        db_name: of the database.
        host: of the server.
        schema: of the tables.
        port: of the server.
        s3_access_role_arn: the role that may unload to S3; or
        username: the user, and
        password: the user's password.
    """

    db_name: str
    host: str
    schema: str
    port: int = 5439
    s3_access_role_arn: str | None = None
    username: Credential | None = None
    password: Credential | None = None

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

    def table(self, table_name: str, cursor: str | None = None) -> TableConnector:
        """Return the connector for one table.

        Args:
            table_name: its name.
            cursor: the column that increases with every change.
        """
        return TableConnector(source=self, table=table_name, cursor=cursor)
