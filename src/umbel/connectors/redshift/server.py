"""Connections to Redshift, descriptions of its tables, and its errors."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from umbel.connectors.credentials import resolved
from umbel.connectors.redshift.columns import described
from umbel.connectors.redshift.login import temporary_login
from umbel.connectors.sql.columns import quote
from umbel.connectors.sql.server import PATIENCE, DatabaseServer, TableDescription
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError, did_you_mean

if TYPE_CHECKING:
    from umbel.connectors.redshift import Redshift

LONGEST = 3600
"""Seconds after which a statement is given up, by the server and by the client."""
SESSION = (f"SET statement_timeout TO {LONGEST * 1000}", "SET extra_float_digits TO 2")
"""Statements at the begin of each session; the second one is for versions of the protocol that write floats as text."""
_REACH = "see that the cluster is not paused, and its security group and routes admit this machine on its port"
_BROKEN = (ConnectionError, TimeoutError, ssl.SSLError, struct.error)
"""Errors of the client library when a connection breaks, beside its own."""
_AGAIN = ("08", "40", "53", "55", "57", "58", "XX")
"""Classes of SQLSTATE after which another attempt may succeed: connection, conflict, resources, shutdown, input and output."""
_UNKNOWN_COLUMN, _NO_RIGHT = "42703", "42501"
_UNKNOWN = {"42P01": "table", "3F000": "schema", "0A000": "database"}


@dataclass(frozen=True, kw_only=True, repr=False)
class RedshiftServer(DatabaseServer):
    """A database of Redshift and a login.

    Args:
        schema: of the tables.
        role: of AWS, that has a temporary password; None for user and password.
    """

    schema: str
    role: str | None = None

    names: ClassVar[Sequence[str]] = ()
    example: ClassVar[str] = ""

    @classmethod
    def of_source(cls, title: str, source: Redshift) -> Self:
        """Return the server of a source."""
        return cls(
            title=title,
            host=source.host,
            port=source.port,
            database=source.db_name,
            user=source.username or "",
            password=source.password or "",
            schema=source.schema,
            role=source.s3_access_role_arn,
        )

    @property
    def login(self) -> str:
        if self.role is not None:
            return f'"IAMR:{self.role.rpartition("/")[2]}"'
        return super().login

    @contextmanager
    def connect(self, **options: Any) -> Iterator[Any]:
        """Connect for a block; errors of the server in it become umbel's.

        Raises:
            Transient: another attempt may succeed.
            InvalidValue: the login, a table, a column or a right is wrong.
        """
        client = driver()
        connection = self._connected(client, options)
        try:
            for each in SESSION:
                connection.cursor().execute(each)
            yield connection
        except client.Error as error:
            raise self._translated(error) from None
        except _BROKEN as error:
            raise self._gone(error) from None
        finally:
            with contextlib.suppress(client.Error, OSError):
                connection.close()

    def _connected(self, client: Any, options: dict[str, Any]) -> Any:
        arguments = self._arguments() | options
        try:
            # the client waits on its own for as long as the system does, which is minutes where packets are dropped
            socket.create_connection((self.host, self.port), PATIENCE).close()
            return client.connect(**arguments)
        except ssl.SSLCertVerificationError as error:
            raise self._untrusted(error) from None
        except client.Error as error:
            inner = next((each for each in error.args if isinstance(each, ssl.SSLCertVerificationError)), None)
            raise self._untrusted(inner) if inner is not None else self._translated(error) from None
        except (OSError, struct.error) as error:
            raise self._gone(error) from None

    def _arguments(self) -> dict[str, Any]:
        if self.role is None:
            user, password = resolved(self.user), resolved(self.password)
        else:
            user, password = temporary_login(self.title, self.role, self.host, self.database)
        return {
            "host": self.host,
            "port": self.port,
            "database": self.database,
            "user": user,
            "password": password,
            "ssl": True,
            "sslmode": "verify-full",
            "timeout": LONGEST,
            "tcp_keepalive_idle": 30,
            "application_name": "umbel",
        }

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> InvalidValue:
        return InvalidValue(
            f"{self.title}: the certificate of {self.host} is refused: {error.verify_message}",
            hint="host= is the endpoint that the console shows; SSL_CERT_FILE names further authorities",
        )

    def _gone(self, error: Exception) -> Transient:
        return Transient(f"{self.title}: {self.host}:{self.port}: {str(error) or type(error).__name__}", hint=_REACH)

    def _translated(self, error: Any) -> UmbelError:
        state, text = reason_of(error)
        if not state:
            return Transient(f"{self.title}: {text}", hint=_REACH)
        if state.startswith("28"):
            return InvalidValue(f"{self.title}: {text}", hint="correct username= and password= of the source")
        if state == "3D000":
            return InvalidValue(f"{self.title}: {text}", hint="correct db_name= of the source")
        if state == _NO_RIGHT:
            hint = f"GRANT SELECT on the table, and USAGE ON SCHEMA {quote(self.schema)}, TO {self.login}"
            return InvalidValue(f"{self.title}: {text}", hint=hint)
        if state in _UNKNOWN:
            hint = "correct schema= of the source, or the table's name: .table(name), .table('schema.name')"
            return InvalidValue(f"{self.title}: {text}", hint=hint)
        if state.startswith(_AGAIN):
            return Transient(f"{self.title}: {text} (SQLSTATE {state})", hint="see the system table STL_ERROR")
        return InvalidValue(f"{self.title}: {text} (SQLSTATE {state})")


def driver() -> Any:
    """Return the package that speaks to Redshift.

    Raises:
        PackageError: it is not installed.
    """
    try:
        import redshift_connector
    except ImportError as error:
        raise PackageError(
            "tables of Redshift need the package redshift-connector", hint="pip install 'umbel[redshift]'"
        ) from error
    return redshift_connector


def reason_of(error: Any) -> tuple[str, str]:
    """Return the SQLSTATE of a server's error, empty for others, and its text."""
    found = error.args[0] if error.args else ""
    if isinstance(found, dict):
        return str(found.get("C", "XX000")), str(found.get("M", "")).strip()[:300]
    return "", ": ".join(str(each) for each in error.args)[:300] or type(error).__name__


@dataclass(frozen=True)
class RedshiftDescription(TableDescription):
    """A table as its server describes it.

    Args:
        names: those of the columns in the catalog, by their names here.
    """

    names: dict[str, str]

    def quoted(self, name: str) -> str:
        """Return the name of a column in statements."""
        return quote(self.names[name])


def describe(connection: Any, server: RedshiftServer, name: str, fields: Sequence[str] | None) -> RedshiftDescription:
    """Return the description of a table or a view, from an empty result.

    Args:
        connection: to its database.
        server: the source's.
        name: of the table; with a schema, or a database and a schema, for others than the source's.
        fields: the names that columns are requested by; None for all there are.

    Raises:
        InvalidValue: there is no such table, or no such column.
    """
    parts = name.split(".") if "." in name else [server.schema, name]
    if not all(parts) or len(parts) > 3:
        raise InvalidValue(f"{server.title}: '{name}' is no name of a table", hint="table, or schema.table")
    quoted = ".".join(map(quote, parts))
    try:
        found = _types(connection, quoted, None if fields is None else tuple(dict.fromkeys(fields)))
    except driver().Error as error:
        if fields is None or reason_of(error)[0] != _UNKNOWN_COLUMN:
            raise
        connection.rollback()
        raise _unknown(server, quoted, reason_of(error)[1], _types(connection, quoted, None)) from None
    names = {each: each for each in found}
    for field in fields or ():  # upper case is lower case here, unless the cluster is told otherwise
        if field not in found and field.lower() in found:
            names[field] = names.pop(field.lower(), field.lower())
    return RedshiftDescription(quoted, {each: described(each, found[inner]) for each, inner in names.items()}, names)


def _types(connection: Any, table: str, fields: Sequence[str] | None) -> dict[str, int]:
    """Return the numbers of the columns' types."""
    chosen = "*" if fields is None else ", ".join(map(quote, fields))
    with connection.cursor() as client:
        client.execute(f"SELECT {chosen} FROM {table} LIMIT 0")  # noqa: S608  names are quoted
        return {_text(each[0]): int(each[1]) for each in client.description}


def _unknown(server: RedshiftServer, table: str, text: str, found: dict[str, int]) -> InvalidValue:
    missing = next((each for each in text.split('"')[1::2] if each not in found), "")
    return InvalidValue(
        f"{server.title}: table {table}: {text}{did_you_mean(missing, found)}",
        hint="add the column to the table, name it in preproc with ref(...), or leave the field out",
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
