# ruff: noqa: S608 - the queries are made of names of tables and columns, none of values
"""Checksums of the rows of a catalog in SQLite, whose pages have none.

A flipped byte within a value is another value to SQLite. So triggers, which each connection of umbel makes for itself, note a
checksum of each row that is written. Triggers in the file forget it before, for other writers: processes of an older version go
on while a newer one migrates the tables. PostgreSQL has checksums of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, Table

from umbel.catalog import tables as t
from umbel.catalog.checksums import REMEDY
from umbel.errors import Damaged

if TYPE_CHECKING:
    import sqlite3

SUMS = "row_sums"
_FUNCTION = "umbel_row_sum"
DECISIVE: Sequence[Table] = [
    row.metadata.tables[row.__tablename__]
    for row in (t.SettingRow, t.Commit, t.DefinitionPiece, t.Erasure, t.Job, t.BatchRow, t.BackfillRow, t.Removal)
]
"""What is processed and answered depends on them."""
COVERED: Sequence[Table] = [
    *DECISIVE,
    *(row.metadata.tables[row.__tablename__] for row in (t.Token, t.SecretRow, t.Verdict, t.Suspect)),
]
"""The others are counts, events, dead letters and offline queries: many rows, of which no answer is made."""


def row_sum(*values: float | str | bytes | None) -> int:
    """Return the checksum of the values of a row."""
    found = 0
    for value in values:
        data = value if isinstance(value, bytes) else b"" if value is None else str(value).encode()
        found = zlib.crc32(data, zlib.crc32(f"{type(value).__name__} {len(data)} ".encode(), found))
    return found


def add_function(connection: sqlite3.Connection) -> None:
    """Let a connection compute checksums."""
    connection.create_function(_FUNCTION, -1, row_sum, deterministic=True)


def add_triggers(connection: sqlite3.Connection, _: Any = None) -> None:
    """Let a connection note the checksums of the rows that it writes."""
    for table in COVERED:
        name, old, new = table.name, _noted(table, "OLD."), _noted(table, "NEW.")
        forget = f"DELETE FROM {SUMS} WHERE of = '{name}' AND row = {old[0]};"
        note = f"INSERT INTO {SUMS} (of, row, sum) VALUES ('{name}', {new[0]}, {new[1]});"
        forget_new = f"DELETE FROM {SUMS} WHERE of = '{name}' AND row = {new[0]};"
        for event, does in (
            ("INSERT", f"{forget_new} {note}"),
            ("UPDATE", f"{forget} {forget_new} {note}"),
            ("DELETE", forget),
        ):
            connection.execute(f"CREATE TEMP TRIGGER sum_{event}_{name} AFTER {event} ON main.{name} BEGIN {does} END")


def note_all(connection: Connection) -> None:
    """Note the checksums of all rows as they are: the tables have been migrated."""
    connection.exec_driver_sql(f"DELETE FROM {SUMS}")
    for table in COVERED:
        _forget_written(connection, table)
        row, found = _noted(table)
        connection.exec_driver_sql(
            f"INSERT INTO {SUMS} (of, row, sum) SELECT '{table.name}', {row}, {found} FROM {table.name}"
        )


def _forget_written(connection: Connection, table: Table) -> None:
    """Let all connections forget the checksums of the rows of a table that they write.

    They are forgotten before a row is written, and noted after it, by those that can. Inserted rows have none.
    """
    for event, rows in (("UPDATE", ["OLD.", "NEW."]), ("DELETE", ["OLD."])):
        name, keys = f"forget_{event}_{table.name}", ", ".join(_noted(table, each)[0] for each in rows)
        does = f"DELETE FROM {SUMS} WHERE of = '{table.name}' AND row IN ({keys})"
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
        connection.exec_driver_sql(f"CREATE TRIGGER {name} BEFORE {event} ON {table.name} BEGIN {does}; END")


def check_rows(engine: Engine, tables: Sequence[Table]) -> None:
    """Compare rows with their checksums; those that have none were not written by umbel.

    Raises:
        Damaged: a row has changed, or is missing.
    """
    if engine.dialect.name != "sqlite":
        return
    wrong = list[str]()
    with engine.connect() as connection:
        for table in tables:
            try:
                wrong += [f"{table.name} {row} {what}" for row, what in connection.exec_driver_sql(_differing(table))]
            except Damaged as error:  # as of text that is none
                wrong.append(f"{table.name}: {error.message}")
    if wrong:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise Damaged(f"the catalog is damaged: {'; '.join(wrong[:5])}{more}"[:1000], hint=REMEDY)


def _differing(table: Table) -> str:
    """Return the query of the rows that differ from their checksum.

    It is one query, so that writers do not disturb.
    """
    row, found = _noted(table)
    return (
        f"SELECT written.row, 'is not as it was written' FROM {SUMS} AS written"
        f" JOIN (SELECT {row} AS row, {found} AS sum FROM {table.name}) AS there ON there.row = written.row"
        f" WHERE written.of = '{table.name}' AND written.sum <> there.sum"
        f" UNION ALL SELECT row, 'is missing' FROM {SUMS}"
        f" WHERE of = '{table.name}' AND row NOT IN (SELECT {row} FROM {table.name})"
    )


def _noted(table: Table, prefix: str = "") -> tuple[str, str]:
    """Return the expressions of a row's key and of its checksum."""
    key = " || ', ' || ".join(f'quote({prefix}"{column.name}")' for column in table.primary_key.columns)
    values = ", ".join(f'{prefix}"{column.name}"' for column in table.columns)
    return f"({key})", f"{_FUNCTION}({values})"
