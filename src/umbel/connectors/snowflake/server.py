"""Connections to Snowflake, descriptions of its tables, and its errors."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import urlsplit

from umbel.connectors.credentials import resolved
from umbel.connectors.snowflake.columns import described, exact, names_of
from umbel.connectors.sql.columns import quote
from umbel.connectors.sql.server import PATIENCE, DatabaseServer, TableDescription
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError

if TYPE_CHECKING:
    from umbel.connectors.snowflake import Snowflake

ADDRESS = "UMBEL_SNOWFLAKE"
"""The variable with an address to connect to, instead of the account's own."""
LONGEST, REQUEST = 3600, 120
"""Seconds after which a statement, and one request for it, are given up."""
SESSION = {"QUERY_TAG": "umbel", "TIMEZONE": "UTC"}
"""Parameters of each session."""
_LOGIN = {
    "390100": "correct username= and password= of the source",
    "390144": "correct username= and password= of the source",
    "390189": "correct role= of the source, or grant it to the user",
    "390201": "correct db_name=, schema= and warehouse= of the source, or grant USAGE on them to the role",
    "390432": "let the account's network policy admit this address",
    "390400": "let the account's network policy admit this address",
    "394504": "give the user programmatic access; this login needs a second factor",
}
"""Errors that connecting again does not mend, with their remedies."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SnowflakeServer(DatabaseServer):
    """An account of Snowflake and a login.

    Args:
        schema: of the tables.
        warehouse: runs the statements.
        role: that the user acts in.
        rights: on the table, which the role needs.
        of_values: the class of errors about values (SQLSTATE 22).
    """

    schema: str
    warehouse: str
    role: str
    rights: str = "SELECT"
    of_values: type[InvalidValue] = InvalidValue

    names: ClassVar[Sequence[str]] = ()
    example: ClassVar[str] = ""

    @classmethod
    def of_account(cls, title: str, source: Snowflake, **options: Any) -> Self:
        """Return the server of a source."""
        return cls(
            **options,
            title=title,
            host=source.account,
            port=443,
            database=source.db_name,
            user=source.username,
            password=source.password,
            schema=source.schema,
            warehouse=source.warehouse,
            role=source.role,
        )

    @contextmanager
    def connect(self, **options: Any) -> Iterator[Any]:
        """Connect for a block; errors of the server in it become umbel's.

        Raises:
            Transient: another attempt may succeed.
            InvalidValue: the login, a table, a column or a right is wrong.
        """
        client = driver()
        with self.translating(), closing(client.connect(**(self._arguments() | options))) as connection:
            yield connection

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Turn errors of the server within a block into umbel's."""
        client = driver()
        try:
            yield
        except client.errors.Error as error:
            raise self._translated(error) from None

    def _arguments(self) -> dict[str, Any]:
        address = urlsplit(os.environ.get(ADDRESS, ""))
        other = {"host": address.hostname, "port": address.port, "protocol": address.scheme} if address.hostname else {}
        return {
            "account": self.host,
            "user": resolved(self.user),
            "password": resolved(self.password),
            "database": self.database,
            "schema": self.schema,
            "warehouse": self.warehouse,
            "role": self.role,
            "application": "umbel",
            "login_timeout": 3 * PATIENCE,
            "request_timeout": REQUEST,
            "query_timeout": LONGEST,
            "platform_detection_timeout_seconds": 0,  # else it asks the cloud around for credentials, at each login
            "enable_server_session_keep_alive_auto_detection": False,
            "session_parameters": SESSION,
            **other,
        }

    def _translated(self, error: Any) -> UmbelError:
        text, state, code = _first_line(error), error.sqlstate or "", f"{error.errno or 0:06d}"
        if code in _LOGIN or text[:6] in _LOGIN:
            return InvalidValue(f"{self.title}: {text}", hint=_LOGIN.get(code) or _LOGIN[text[:6]])
        if code == "000606":
            return InvalidValue(
                f"{self.title}: {text}", hint=f"GRANT USAGE ON WAREHOUSE {self.warehouse} TO ROLE {self.role}"
            )
        if state in {"42501", "42S02", "02000"} or code in {"002003", "003001", "002043"}:
            return InvalidValue(
                f"{self.title}: {text}",
                hint=f"GRANT {self.rights} on it, and USAGE on its schema and database, TO ROLE {self.role}; names are those of "
                "SQL: upper and lower case are the same unless they are in quotes, as .table('\"Orders\"')",
            )
        if state.startswith(("22", "42")):
            kind = self.of_values if state.startswith("22") else InvalidValue
            return kind(f"{self.title}: {text} (SQLSTATE {state})")
        return Transient(f"{self.title}: {text}", hint="see that the account can be reached, and its warehouse runs")


def driver() -> Any:
    """Return the package that speaks to Snowflake.

    Raises:
        PackageError: it is not installed.
    """
    try:
        import snowflake.connector
    except ImportError as error:
        raise PackageError(
            "tables of Snowflake need the package snowflake-connector-python", hint="pip install 'umbel[snowflake]'"
        ) from error
    logging.getLogger("snowflake.connector").setLevel(logging.ERROR)  # else each login warns of a proxy
    return snowflake.connector


@dataclass(frozen=True)
class SnowflakeDescription(TableDescription):
    """A table as its server describes it.

    Args:
        names: those of the columns in the catalog, by their names here.
    """

    names: dict[str, str]


def describe(connection: Any, name: str, fields: Sequence[str]) -> SnowflakeDescription:
    """Return the description of a table; no warehouse is needed.

    Args:
        connection: to its account.
        name: of the table, as in SQL.
        fields: the names that columns are requested by.
    """
    quoted = ".".join(quote(exact(each)) for each in split_name(name))
    rows = connection.cursor().execute(f"DESCRIBE TABLE {quoted}").fetchall()
    names = names_of([row[0] for row in rows], fields)
    found = {row[0]: (row[1], row[5]) for row in rows}
    columns = {
        each: described(each, found[inner][0], is_primary=found[inner][1] == "Y") for each, inner in names.items()
    }
    return SnowflakeDescription(quoted, columns, names)


def split_name(name: str) -> list[str]:
    """Return the parts of a name, which may be in quotes.

    >>> split_name('shop."a.b"')
    ['shop', '"a.b"']
    """
    parts, is_quoted = [""], False
    for sign in name:
        is_quoted ^= sign == '"'
        if sign == "." and not is_quoted:
            parts.append("")
        else:
            parts[-1] += sign
    if is_quoted or not all(parts) or len(parts) > 3:
        raise InvalidValue(f"'{name}' is no name of a table", hint='table, schema.table, or "Table" in quotes')
    return parts


def _first_line(error: Any) -> str:
    text = str(error.msg if getattr(error, "msg", None) else error)
    return (text.strip().splitlines() or [type(error).__name__])[0][:300]
