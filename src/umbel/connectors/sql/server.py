"""Database servers with a login, and descriptions of their tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self
from urllib.parse import parse_qsl

from umbel.connectors.credentials import resolved
from umbel.connectors.sql import SQLSource
from umbel.connectors.sql.columns import Column
from umbel.definitions.secret import Credential
from umbel.errors import InvalidValue, did_you_mean

PATIENCE = 10
"""Seconds to connect."""


class TableServer(Protocol):
    """A place of tables and a login."""

    @property
    def title(self) -> str:
        """The source, for messages."""

    def revealed(self) -> Self:
        """Return the same with its credentials resolved, for a process without the deployment's secrets."""

    def connect(self, **options: Any) -> AbstractContextManager[Any]:
        """Connect for a block; errors of the server in it become umbel's."""


@dataclass(frozen=True, kw_only=True)
class DatabaseServer:
    """A database server and a login.

    Args:
        title: of the source, for messages.
        host: its address.
        port: its port.
        database: the name of the database.
        user: the user.
        password: the password; never shown.
        parameters: further ones of the driver, as in a URL.
    """

    title: str
    host: str
    port: int
    database: str
    user: Credential
    password: Credential
    parameters: str | None = None

    names: ClassVar[Sequence[str]]
    """The names that `parameters` may have."""
    example: ClassVar[str]
    """Valid `parameters`."""

    @classmethod
    def of(cls, title: str, source: SQLSource, port: int) -> Self:
        """Return the server of a source.

        Raises:
            InvalidValue: a parameter is unknown.
        """
        made = cls(
            title=title,
            host=source.host,
            port=port,
            database=source.db_name,
            user=source.username,
            password=source.password,
            parameters=source.jdbc_params,
        )
        made.further()
        return made

    def __repr__(self) -> str:
        return f"{self.title}: {self.login} at {self.host}:{self.port}/{self.database}"

    @property
    def login(self) -> str:
        """The user, for messages."""
        return self.user if isinstance(self.user, str) else "the user"

    def revealed(self) -> Self:
        """Return the same with its credentials resolved, for a process without the deployment's secrets."""
        return replace(self, user=resolved(self.user), password=resolved(self.password))

    @abstractmethod
    def connect(self, **options: Any) -> AbstractContextManager[Any]:
        """Connect for a block; errors of the server in it become umbel's.

        Raises:
            Transient: another attempt may succeed.
            InvalidValue: the login, a table, a column or a right is wrong.
        """

    def further(self) -> dict[str, str]:
        """Return the further connection parameters, written as in a URL: `sslmode=require&sslrootcert=/ca.pem`.

        Raises:
            InvalidValue: one is unknown.
        """
        found = dict(parse_qsl(self.parameters or "", keep_blank_values=True))
        for name in found:
            if name not in self.names:
                raise InvalidValue(
                    f"{self.title}: jdbc_params: unknown parameter '{name}'{did_you_mean(name, self.names)}",
                    hint=f'jdbc_params="{self.example}"',
                )
        return found


@dataclass(frozen=True)
class TableDescription:
    """A table as its server describes it.

    Args:
        name: with its schema, quoted.
        columns: by name, in order.
    """

    name: str
    columns: dict[str, Column]

    def require(self, title: str, names: tuple[str, ...]) -> None:
        """Refuse columns that the table does not have."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            listed = ", ".join(f"'{name}'" for name in missing)
            raise InvalidValue(
                f"{title}: table {self.name} has no column {listed}{did_you_mean(missing[0], self.columns)}",
                hint="add the column to the table, name it in preproc with ref(...), or leave the field out",
            )
