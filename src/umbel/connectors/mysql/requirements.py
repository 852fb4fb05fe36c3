"""The settings of servers and tables that reading changes from the binary log needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from umbel.connectors.mysql.copying import is_mariadb
from umbel.connectors.mysql.server import MySQLDescription, rows

if TYPE_CHECKING:
    from pymysql import Connection

REQUIRED = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
OF_MYSQL = {"gtid_mode": "ON", "binlog_row_value_options": ""}
_CASCADE = re.compile(
    r"CONSTRAINT\s+`[^`]*`\s+FOREIGN KEY.*?ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)", re.IGNORECASE
)
_BY_TRANSACTIONS = re.compile(r"\bbigint\b[^,]*\bGENERATED ALWAYS AS ROW END\b", re.IGNORECASE)
_STATUS = ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
"""The statements that show the filters of a binary log; servers since MySQL 8.4 have the second one only."""
_NO_SYNTAX, _NO_RIGHT = 1064, 1227


def table_problems(table: MySQLDescription) -> Iterator[tuple[str, str]]:
    """Yield what keeps the log from having all changes of a table, and the remedies."""
    if table.is_view:
        yield f"{table.name} is a view, and only tables have changes", "read it by a cursor"
    engine = re.search(r"\bENGINE=(\w+)", table.definition)
    if engine and engine[1].lower() not in {"innodb", "rocksdb"}:
        yield (
            f"{table.name} has the engine {engine[1]}, which has no transactions",
            f"ALTER TABLE {table.name} ENGINE = InnoDB",
        )
    if (found := _CASCADE.search(table.definition)) is not None:
        yield (
            f"changes that foreign keys make are not in the binary log, and {table.name} has: {found[0]}",
            "make the constraint RESTRICT and delete or change these rows by statements, or read the table by a cursor",
        )
    if _BY_TRANSACTIONS.search(table.definition):
        yield (
            f"{table.name} has rows that end with transactions (ROW END is a bigint), whose changes are logged as statements",
            "declare ROW START and ROW END as timestamp(6), or read the table by a cursor",
        )


def setting_problems(connection: Connection[Any]) -> Iterator[tuple[str, str]]:
    """Yield settings that keep the log from having all changes, and the remedies."""
    required = REQUIRED if is_mariadb(connection) else {**REQUIRED, **OF_MYSQL}
    listed = ", ".join(f"'{name}'" for name in required)
    query = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})"
    found = {str(name): str(value) for name, value in rows(connection, query)}
    for name, value in required.items():
        actual = found.get(name, value if name in OF_MYSQL and not value else None)
        if actual is None:
            yield (
                f"the server has no {name}",
                "changes are read from MariaDB 10.5 or MySQL 8.0 on; read the table by a cursor",
            )
        elif actual.upper() != value:
            line = f"{name} = {value}" if value != "ON" or name != "log_bin" else "log_bin"
            where = f"in the server's configuration: {line}; then restart it"
            yield (
                f"{name} of the server is '{actual}'",
                where if name in {"log_bin", "gtid_mode"} else f"SET GLOBAL {name} = '{value}', and {where}",
            )


def filter_problems(connection: Connection[Any], table: MySQLDescription) -> Iterator[tuple[str, str]]:
    """Yield that the server leaves the table's database out of its log, and the remedy."""
    included, excluded = _filters(connection)
    if table.database in ([] if included else excluded) or (included and table.database not in included):
        name = "binlog_do_db" if included else "binlog_ignore_db"
        problem = f"the server leaves the database {table.database} out of its binary log"
        yield (
            f"{problem}: {name} is '{','.join(included or excluded)}'",
            f"correct {name} in the server's configuration, then restart it; or read the table by a cursor",
        )


def _filters(connection: Connection[Any]) -> tuple[list[str], list[str]]:
    """Return the databases that alone are logged, and those that are not.

    None of either where the user may not see them.
    """
    import pymysql

    for statement in _STATUS:
        try:
            found = rows(connection, statement)
        except pymysql.MySQLError as error:
            if error.args[0] not in {_NO_SYNTAX, _NO_RIGHT}:
                raise
        else:
            return _databases(found[0][2]) if found else [], _databases(found[0][3]) if found else []
    return [], []


def _databases(names: Any) -> list[str]:
    return [each for each in str(names or "").split(",") if each]
