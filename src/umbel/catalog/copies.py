"""Copies of a catalog in another database, row by row."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from umbel.catalog.engine import migrated
from umbel.catalog.tables import CatalogRow
from umbel.errors import InvalidValue
from umbel.state.passwords import masked
from umbel.types import epochs

ROWS_AT_ONCE = 1000


def copy_rows(source: Connection, target: Connection) -> None:
    """Replace all rows of a catalog's tables by those of another one.

    Args:
        source: of a database with the tables.
        target: of one with the same tables.
    """
    for table in CatalogRow.metadata.sorted_tables:
        target.execute(delete(table))
        for rows in source.execute(select(table)).mappings().partitions(ROWS_AT_ONCE):
            target.execute(insert(table), [{name: _in_utc(value) for name, value in row.items()} for row in rows])
    if target.dialect.name == "postgresql":
        _continue_numbers(target)


def load(file_url: str, url: str, *, is_repeated: bool = False) -> None:
    """Copy a catalog into an empty database.

    Args:
        file_url: of the catalog.
        url: of the database.
        is_repeated: True if the database may have the catalog already, and nobody uses it yet.

    Raises:
        InvalidValue: the database has a catalog already.
        Transient: it cannot be reached.
    """
    source, target = migrated(file_url), migrated(url)
    try:
        with source.connect() as reader, target.begin() as writer:
            is_filled = any(writer.execute(select(func.count()).select_from(each)).scalar() for each in _tables())
            if is_filled and not is_repeated:
                raise InvalidValue(
                    f"--catalog: there is a catalog in {masked(url)} already", hint="name an empty database"
                )
            copy_rows(reader, writer)
    finally:
        source.dispose()
        target.dispose()


def _tables() -> list[Any]:
    return list(CatalogRow.metadata.sorted_tables)


def _in_utc(value: Any) -> Any:
    """Return an instant as UTC: SQLite stores it without a time zone."""
    return epochs.in_utc(value) if isinstance(value, datetime) else value


def _continue_numbers(target: Connection) -> None:
    """Let PostgreSQL number new rows after those that were copied."""
    for table in _tables():
        column = table.autoincrement_column
        if column is None:
            continue
        last = target.execute(select(func.max(column))).scalar()
        if last is not None:
            sequence = func.pg_get_serial_sequence(table.name, column.name)
            target.execute(select(func.setval(sequence, last)))
