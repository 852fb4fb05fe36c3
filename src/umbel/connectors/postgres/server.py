"""Connections to a Postgres server, descriptions of its tables, and its errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from umbel.connectors.credentials import resolved
from umbel.connectors.postgres.columns import described
from umbel.connectors.sql.following import ANEW
from umbel.connectors.sql.server import PATIENCE, DatabaseServer, TableDescription
from umbel.errors import InvalidValue, PackageError, Terminal, Transient, UmbelError, did_you_mean

if TYPE_CHECKING:
    import psycopg

SETTINGS = "-c datestyle=ISO -c timezone=UTC -c intervalstyle=postgres -c bytea_output=hex -c extra_float_digits=1"
"""The text form of values depends on these settings."""
PARAMETERS = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "connect_timeout",
    "application_name",
    "target_session_attrs",
)
"""The names that `jdbc_params` may have, those of libpq."""
AGAIN = ("08", "40", "53", "55", "57", "58", "XX")
"""Classes of SQLSTATE after which another attempt may succeed: connection, conflict, resources, shutdown, input and output."""
_LASTING = {
    "password authentication failed": "correct username= and password= of the source",
    "no password supplied": "give the source a password=",
    "no pg_hba.conf entry": "add a line for this host to the server's pg_hba.conf, then SELECT pg_reload_conf()",
    "does not exist": "correct db_name= and username= of the source",
    "is not permitted to log in": "ALTER ROLE ... LOGIN",
    "must be superuser or replication role": "ALTER ROLE ... REPLICATION",
    "permission denied to start WAL sender": "ALTER ROLE ... REPLICATION",
}
"""Texts of errors that connecting again does not mend, with their remedies; libpq gives no SQLSTATE for them."""
SLOTS_HINT = (
    "drop those that nobody reads: SELECT slot_name FROM pg_replication_slots WHERE NOT active; "
    "or raise max_replication_slots and restart the server"
)
"""The remedy for a server whose replication slots are all in use."""

DESCRIBE = """
SELECT a.attname, b.typname, e.typname, CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
       coalesce(i.indkey::int2[] @> ARRAY[a.attnum], c.relreplident = 'f'), coalesce(p.indkey::int2[] @> ARRAY[a.attnum], false),
       coalesce(e.typdelim, ',')::text, coalesce(to_jsonb(a) ->> 'attgenerated', '') <> ''
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_type e ON e.typarray = b.oid
LEFT JOIN pg_index p ON p.indrelid = c.oid AND p.indisprimary
LEFT JOIN pg_index i ON i.indrelid = c.oid
  AND (c.relreplident = 'd' AND i.indisprimary OR c.relreplident = 'i' AND i.indisreplident)
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Server(DatabaseServer):
    """A server of Postgres and a login."""

    names: ClassVar[Sequence[str]] = PARAMETERS
    example: ClassVar[str] = "sslmode=require"

    @contextmanager
    def connect(self, **options: Any) -> Iterator[psycopg.Connection[Any]]:
        """Connect for a block; errors of the server in it become umbel's.

        Raises:
            Transient: another attempt may succeed.
            InvalidValue: the login, a table, a column or a right is wrong.
        """
        psycopg = driver()
        try:
            # closed without a COMMIT: there may be a stream in progress, or a transaction that only read
            with closing(psycopg.connect(**self._arguments(), **options)) as connection:
                yield connection
        except psycopg.Error as error:
            raise self._translated(error) from None

    def _arguments(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "port": self.port,
            "dbname": self.database,
            "user": resolved(self.user),
            "password": resolved(self.password),
            "options": SETTINGS,
            "client_encoding": "UTF8",
            "connect_timeout": PATIENCE,
            "application_name": "umbel",
            "keepalives_idle": 30,
            **self.further(),
        }

    def _translated(self, error: psycopg.Error) -> UmbelError:
        text, state = _first_line(error), error.sqlstate or ""
        hint = next((remedy for part, remedy in _LASTING.items() if part in text), None)
        if hint is not None and state in {"", "28P01", "28000", "3D000", "42501"}:
            return InvalidValue(f"{self.title}: {text}", hint=hint)
        if state == "53400" and "replication slots" in text:
            return Transient(f"{self.title}: {text}", hint=SLOTS_HINT)
        if state in {"", "58P01"} and "has already been removed" in text:
            return Terminal(f"{self.title}: the server lacks WAL of the replication slot: {text}", hint=ANEW)
        if not state or state.startswith(AGAIN):
            return Transient(f"{self.title}: {text}", hint="see that the server runs and can be reached")
        if state == "42501":
            return InvalidValue(f"{self.title}: {text}", hint=f"GRANT SELECT on it to {self.login}")
        return InvalidValue(f"{self.title}: {text} (SQLSTATE {state})")


def driver() -> Any:
    """Return the package that speaks to Postgres.

    Raises:
        PackageError: it is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise PackageError(
            "sources of Postgres need the package psycopg", hint="pip install 'umbel[postgres]'"
        ) from error
    return psycopg


@dataclass(frozen=True)
class PostgresDescription(TableDescription):
    """A table as its server describes it.

    Args:
        oid: its id.
        kind: r for a table, p for a partitioned one, v for a view, ...
        generated: the columns that are computed from others.
    """

    oid: int
    kind: str
    generated: frozenset[str] = frozenset()


def describe(connection: psycopg.Connection[Any], title: str, name: str) -> PostgresDescription:
    """Return the description of a table.

    Args:
        connection: to its database.
        title: of the source, for messages.
        name: of the table, with its schema or found on the search path.

    Raises:
        InvalidValue: there is no such table.
    """
    from psycopg import sql

    quoted = sql.Identifier(*name.split(".", 1)).as_string(connection)
    query = "SELECT oid, relkind FROM pg_class WHERE oid = to_regclass(%s)"
    found = connection.execute(query, [quoted]).fetchone()
    if found is None:
        raise InvalidValue(
            f"{title}: there is no table {quoted}{did_you_mean(name, _tables(connection))}",
            hint="names are as in the catalog, upper and lower case differ; schema.table for another schema than public",
        )
    rows = connection.execute(DESCRIBE, [found[0]]).fetchall()
    columns = {
        name: described(name, kind, element, typmod, (bool(is_identity), bool(is_primary)), delimiter)
        for name, kind, element, typmod, is_identity, is_primary, delimiter, _ in rows
    }
    generated = frozenset(name for name, *_, is_generated in rows if is_generated)
    return PostgresDescription(quoted, columns, found[0], _text(found[1]), generated)


def table_bytes(connection: psycopg.Connection[Any], oid: int) -> int:
    """Return the size of a table with its partitions, 0 for a view."""
    query = """SELECT coalesce(sum(pg_relation_size(relid)), 0)::bigint FROM (
               SELECT %(oid)s::oid::regclass AS relid UNION SELECT relid FROM pg_partition_tree(%(oid)s::oid::regclass)) _"""
    found = connection.execute(query, {"oid": oid}).fetchone()
    return int(found[0]) if found else 0


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _tables(connection: psycopg.Connection[Any]) -> list[str]:
    query = """SELECT CASE WHEN schemaname = 'public' THEN tablename ELSE schemaname || '.' || tablename END
               FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') LIMIT 1000"""
    return [row[0] for row in connection.execute(query).fetchall()]


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(
        (line for line in lines if "FATAL" in line or "failed" in line), lines[0] if lines else type(error).__name__
    )
