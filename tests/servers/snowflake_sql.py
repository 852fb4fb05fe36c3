"""The statements of umbel to Snowflake, in DuckDB: transactions, locks of tables, and rewritten functions.

Each session has a transaction of its own. A statement that changes rows of a table waits, until its transaction may lock the
table; one that is idle and in the way of others is ended. Functions are rewritten one by one: this is no proof of what
Snowflake's do. DuckDB's transactions have one snapshot each, where Snowflake's statements have one each.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

TYPES = {
    "VARCHAR": "VARCHAR",
    "FLOAT": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "TIME": "TIME",
    "TIMESTAMP_NTZ": "TIMESTAMP_NS",
    "TIMESTAMP_LTZ": "TIMESTAMPTZ",
    "TIMESTAMP_TZ": "TIMESTAMPTZ",
    "VARIANT": "JSON",
    "ARRAY": "JSON",
    "OBJECT": "JSON",
    "BINARY": "BLOB",
}
NAME = r'("(?:[^"]|"")+"|\w+)'
PATIENCE, IDLE = 20.0, 0.5
"""Seconds that a statement waits for a lock, and after which an idle transaction in its way is ended (there: 300)."""
_REWRITTEN: list[tuple[str, Any]] = [
    (r"TABLE\(FLATTEN\(INPUT => PARSE_JSON\(\?\)\)\) i", "(SELECT unnest(CAST(? AS JSON[])) AS value) i"),
    (r"i\.value\[(\d+)\]::VARCHAR", r"(i.value->>'$[\1]')"),
    (r"TO_TIMESTAMP_NTZ\(([^,]+)::INTEGER, 6\)", r"make_timestamp(CAST(\1 AS BIGINT))"),
    (r"TO_TIMESTAMP_L?TZ\(([^,]+)::INTEGER, 6\)", r"make_timestamptz(CAST(\1 AS BIGINT))"),
    (r"TO_DATE\(([^,]+), 'YYYY-MM-DD'\)", r"CAST(\1 AS DATE)"),
    (r"TO_BINARY\(([^,]+), 'HEX'\)", r"unhex(\1)"),
    (r"PARSE_JSON\((\([^()]+\))\)(::ARRAY|::OBJECT)?", r"CAST(\1 AS JSON)"),
    (r"::NUMBER\((\d+), ?(\d+)\)", r"::DECIMAL(\1,\2)"),
    (r"::FLOAT", "::DOUBLE"),
    (r"'YYYY-MM-DD HH24:MI:SS\.FF9'", "'%Y-%m-%d %H:%M:%S.%n'"),
    (r"'YYYY-MM-DD'", "'%Y-%m-%d'"),
    (r"TO_VARCHAR\(([^(),]+), 'HH24:MI:SS\.FF9'\)", r"CAST(\1 AS VARCHAR)"),
    (r"TO_VARCHAR\(([^(),]+)\)", r"CAST(\1 AS VARCHAR)"),
    (r"TO_VARCHAR\(", "strftime("),
    (r"CONVERT_TIMEZONE\('UTC', ([^()]+)\)::TIMESTAMP_NTZ", r"(\1 AT TIME ZONE 'UTC')"),
    (r"TO_JSON\(([^():]+)(?:::\w+)+\)", r"CAST(\1 AS VARCHAR)"),
    (r"::TIMESTAMP_NTZ", "::TIMESTAMP_NS"),
    (r" \+00:00'::TIMESTAMP_TZ", "+00:00'::TIMESTAMPTZ"),
    (r"\\(['\\])", lambda found: "''" if found[1] == "'" else "\\"),
]


class Failure(Exception):
    """An answer that something is wrong.

    Args:
        code: of the error.
        state: its SQLSTATE.
        message: what is wrong.
    """

    def __init__(self, code: str, state: str, message: str) -> None:
        super().__init__(message)
        self.code, self.state = code, state


def rewritten(statement: str) -> str:
    """Return a statement for DuckDB."""
    for pattern, replacement in _REWRITTEN:
        statement = re.sub(pattern, replacement, statement)
    return statement


def column(name: str, kind: str) -> str:
    """Return the definition of a column for DuckDB; the length of a text is checked."""
    base, _, rest = kind.removesuffix(" NOT NULL").partition("(")
    quoted = '"' + name.replace('"', '""') + '"'
    made = f"{quoted} DECIMAL({rest}" if base == "NUMBER" else f"{quoted} {TYPES[base]}"
    length = f" CHECK(length({quoted}) <= {rest[:-1]})" if base == "VARCHAR" and rest else ""
    return f"{made}{length}{' NOT NULL' if kind.endswith(' NOT NULL') else ''}"


class Session:
    """A login, with its transaction.

    Args:
        database: is shared by all.
        locks: the tables that are locked, and who has them.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection, locks: Locks) -> None:
        self._cursor, self._locks, self._guard = database.cursor(), locks, threading.RLock()
        self._cursor.execute("SET TimeZone = 'UTC'")
        self.is_open, self.used = False, time.monotonic()

    def run(self, statement: str, values: Sequence[Any] = ()) -> duckdb.DuckDBPyConnection:
        """Run a statement of Snowflake."""
        self.used = time.monotonic()
        with self._guard:
            if statement == "BEGIN":
                self.is_open = True
                return self._cursor.execute("BEGIN")
            if statement in {"COMMIT", "ROLLBACK"}:
                return self.end(statement)
            try:
                return self._cursor.execute(rewritten(statement), list(values))
            except duckdb.Error as error:
                raise _failure(error) from None

    def changed(self, statement: str, values: Sequence[Any], table: str) -> dict[str, int]:
        """Run a statement that changes rows; return the number of rows by what happened to them."""
        self._locks.take(table, self)
        try:
            verb = statement.split(maxsplit=1)[0]
            if verb != "MERGE":
                done = {"INSERT": "inserted", "UPDATE": "updated"}[verb]
                return {done: self.run(statement, values).fetchall()[0][0]}
            found = [row[0] for row in self.run(f"{statement} RETURNING merge_action", values).fetchall()]
            return {
                f"{each.lower()}d".replace("td", "ted"): found.count(each) for each in ("INSERT", "UPDATE", "DELETE")
            }
        finally:
            if not self.is_open:
                self._locks.release(self)

    def end(self, statement: str = "ROLLBACK") -> duckdb.DuckDBPyConnection:
        """End the transaction, if one is open."""
        with self._guard:
            if self.is_open:
                self.is_open = False
                try:
                    self._cursor.execute(statement)
                finally:
                    self._locks.release(self)
            return self._cursor.execute("SELECT 'Statement executed successfully.'")


class Locks:
    """The locked tables."""

    def __init__(self) -> None:
        self._of = dict[str, Session]()
        self._changed = threading.Condition()

    def take(self, table: str, session: Session) -> None:
        """Wait until a session may lock a table."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while (other := self._of.setdefault(table, session)) is not session:
                if time.monotonic() > deadline:
                    raise Failure("000625", "57014", f"Statement has locked table '{table}' in another transaction.")
                if time.monotonic() - other.used > IDLE:
                    other.end()
                self._changed.wait(0.05)

    def release(self, session: Session) -> None:
        """Release the locks of a session."""
        with self._changed:
            self._of = {table: each for table, each in self._of.items() if each is not session}
            self._changed.notify_all()


def _failure(error: duckdb.Error) -> Failure:
    text = str(error).splitlines()[0]
    if isinstance(error, duckdb.CatalogException):
        return Failure("002003", "42S02", f"SQL compilation error: {text}")
    if isinstance(error, duckdb.TransactionException):
        return Failure("000625", "57014", text)
    if isinstance(error, duckdb.ConstraintException):
        is_null = "NOT NULL" in text
        return Failure("100072" if is_null else "100078", "22000", text)
    if isinstance(error, duckdb.ConversionException | duckdb.OutOfRangeException):
        return Failure("100038", "22018", text)
    return Failure("001003", "42000", f"SQL compilation error: {error}")


def bound(bindings: Mapping[str, Any] | None) -> list[Any]:
    """Return the values that are bound to a statement."""
    found = [each for _, each in sorted((bindings or {}).items(), key=lambda pair: int(pair[0]))]
    return [int(each["value"]) if each["type"] == "FIXED" else each["value"] for each in found]


MACROS = (
    "CREATE MACRO EQUAL_NULL(a, b) AS a IS NOT DISTINCT FROM b",
    "CREATE MACRO SYSDATE() AS (now() AT TIME ZONE 'UTC')",
)
