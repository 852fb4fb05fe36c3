"""Connections to a MySQL or MariaDB server, descriptions of its tables, and its errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from umbel.connectors.credentials import resolved
from umbel.connectors.mysql.columns import described
from umbel.connectors.sql.server import PATIENCE, DatabaseServer, TableDescription
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError, did_you_mean

if TYPE_CHECKING:
    from pymysql import Connection

SETTINGS = "SET time_zone = '+00:00', sql_mode = '', net_write_timeout = 600"
"""The text form of values depends on the first two; rows are read no faster than they are staged."""
SILENCE = 120
"""Seconds without an answer after which a connection counts as lost."""
_FLAGS = ("ssl_verify_cert", "ssl_verify_identity")
_SECONDS = ("connect_timeout", "read_timeout")
PARAMETERS = ("ssl_ca", "ssl_cert", "ssl_key", *_FLAGS, *_SECONDS)
"""The names that `jdbc_params` may have, those of PyMySQL."""
_AGAIN = frozenset(
    {1020, 1040, 1053, 1077, 1129, 1152, 1159, 1161, 1180, 1203, 1205, 1213, 1226, 1317, 1412, 1927, 3024}
)
"""Errors of the server after which another attempt may succeed: connections, shutdown, locks, limits, changed tables.

Those of the driver are 2000 and above."""
_LASTING = {
    1044: "GRANT SELECT on the table to {login}",
    1045: "correct username= and password= of the source",
    1049: "correct db_name= of the source",
    1130: "CREATE USER ... for the host that umbel runs on",
    1142: "GRANT SELECT on the table to {login}",
    1143: "GRANT SELECT on the table to {login}",
    1227: "GRANT the privilege to {login}",
    1698: "correct username= and password= of the source",
}
"""Errors that connecting again does not mend, with their remedies."""
NO_TABLE = 1146

DESCRIBE = """
SELECT c.COLUMN_NAME, c.DATA_TYPE, c.COLUMN_TYPE, c.NUMERIC_SCALE, c.COLUMN_KEY = 'PRI',
       c.DATA_TYPE IN ('enum', 'set') OR coalesce(c.COLLATION_NAME, 'binary') NOT REGEXP '(_bin|^binary)$'
FROM information_schema.COLUMNS c WHERE c.TABLE_SCHEMA = %s AND c.TABLE_NAME = %s ORDER BY c.ORDINAL_POSITION
"""


@dataclass(frozen=True, kw_only=True, repr=False)
class MySQLServer(DatabaseServer):
    """A server of MySQL or MariaDB and a login."""

    names: ClassVar[Sequence[str]] = PARAMETERS
    example: ClassVar[str] = "ssl_ca=/etc/ca.pem&ssl_verify_cert=true"

    @contextmanager
    def connect(self, **options: Any) -> Iterator[Connection[Any]]:
        pymysql = driver()
        try:
            connection = pymysql.connect(**{**self._arguments(), **options})
            try:
                yield connection
            finally:
                if connection.open:  # closed without reading what a statement may still send
                    connection.close()
        except pymysql.MySQLError as error:
            raise self.translated(error) from None
        except OSError as error:
            raise Transient(
                f"{self.title}: the connection was lost: {error}", hint="see that the server runs and can be reached"
            ) from None

    def _arguments(self) -> dict[str, Any]:
        from pymysql.converters import encoders

        further: dict[str, Any] = dict(self.further())
        for name in {*_FLAGS} & {*further}:
            further[name] = further[name].lower() not in {"false", "0", "no"}
        for name in {*_SECONDS} & {*further}:
            further[name] = int(further[name])
        return {
            "host": self.host,
            "port": self.port,
            "database": self.database,
            "user": resolved(self.user),
            "password": resolved(self.password),
            "charset": "utf8mb4",
            "autocommit": True,
            "conv": encoders,  # values stay as the server writes them
            "init_command": SETTINGS,
            "connect_timeout": PATIENCE,
            "read_timeout": SILENCE,
            "program_name": "umbel",
            **further,
        }

    def translated(self, error: Exception) -> UmbelError:
        """Return an error of the driver or the server as one of umbel's."""
        code, text = _parts(error)
        if code in _LASTING:
            return InvalidValue(f"{self.title}: {text}", hint=_LASTING[code].format(login=self.login))
        if code in _AGAIN or code == 0 or 2000 <= code < 3000:
            return Transient(f"{self.title}: {text}", hint="see that the server runs and can be reached")
        return InvalidValue(f"{self.title}: {text} (error {code})")


def driver() -> Any:
    """Return the package that speaks to MySQL.

    Raises:
        PackageError: it is not installed.
    """
    try:
        import pymysql
    except ImportError as error:
        raise PackageError("sources of MySQL need the package PyMySQL", hint="pip install 'umbel[mysql]'") from error
    return pymysql


@dataclass(frozen=True)
class MySQLDescription(TableDescription):
    """A table as its server describes it.

    Args:
        database: the name of its database.
        table: its name without that.
        definition: the statement that creates it.
        is_view: whether it is a view.
        unordered: the columns whose values cannot be told apart, or put in order, by their text.
    """

    database: str
    table: str
    definition: str
    is_view: bool
    unordered: frozenset[str]


def describe(connection: Connection[Any], title: str, name: str) -> MySQLDescription:
    """Return the description of a table.

    Args:
        connection: to its database.
        title: of the source, for messages.
        name: of the table, with its database if that is another one.

    Raises:
        InvalidValue: there is no such table.
    """
    import pymysql

    database, _, table = name.rpartition(".")
    database = database or str(rows(connection, "SELECT DATABASE()")[0][0])
    quoted = f"{quote(database)}.{quote(table)}"
    try:
        # first of all without the catalog, which shows nothing of tables that may not be read
        rows(connection, f"SELECT 1 FROM {quoted} LIMIT 0")  # noqa: S608  names are quoted
        found = rows(connection, f"SHOW CREATE TABLE {quoted}")[0]
    except pymysql.MySQLError as error:
        if _parts(error)[0] != NO_TABLE:
            raise
        raise InvalidValue(
            f"{title}: there is no table {quoted}{did_you_mean(table, _tables(connection, database))}",
            hint="database.table for another database than db_name",
        ) from None
    definition, columns = str(found[1]), rows(connection, DESCRIBE, database, table)
    made = {row[0]: described(row[0], row[1], row[2], row[3], definition, is_primary=row[4] == "1") for row in columns}
    is_view = definition.upper().startswith("CREATE ALG")
    unordered = frozenset(row[0] for row in columns if row[5] == "1")
    return MySQLDescription(quoted, made, database, table, definition, is_view, unordered)


def rows(connection: Connection[Any], query: str, *parameters: Any) -> Sequence[Sequence[Any]]:
    """Run a statement; return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(query, parameters or None)
        found: Sequence[Sequence[Any]] = cursor.fetchall()
        return found


def may(connection: Connection[Any], *privileges: str) -> bool:
    """Return whether the user has one of some global privileges."""
    granted = " ".join(str(each[0]) for each in rows(connection, "SHOW GRANTS"))
    names = "|".join(map(re.escape, privileges))
    return bool(re.search(rf"\bALL PRIVILEGES ON \*\.\*|\b(?:{names})(?:,[^;]*?)? ON \*\.\*", granted))


def quote(name: str) -> str:
    """Return a name as in a statement."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _parts(error: Exception) -> tuple[int, str]:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    if not text and type(error).__name__ == "InterfaceError":
        text = "the connection is closed"  # of which the driver says nothing
    lines = text.strip().splitlines()
    return code, lines[0] if lines else type(error).__name__


def _tables(connection: Connection[Any], database: str) -> list[str]:
    query = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s LIMIT 1000"
    return [row[0] for row in rows(connection, query, database)]
