"""Snapshots of a catalog, while other processes use it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, make_url
from sqlalchemy.exc import DBAPIError

from umbel.catalog.copies import copy_rows
from umbel.catalog.engine import migrated
from umbel.catalog.tables import CatalogRow
from umbel.errors import Transient
from umbel.state import disk

PATIENCE = 60.0
"""Seconds to wait for the writers of the catalog."""
TRY_EVERY = 0.02
"""Seconds between two attempts to lock the tables of PostgreSQL."""


class CatalogSnapshot(Protocol):
    """The catalog as it is while nobody can write it."""

    def copy(self, target: Path) -> None:
        """Write it as a database of SQLite, durably."""


@contextmanager
def unwritten(url: str) -> Iterator[CatalogSnapshot]:
    """Let nobody write a catalog during a block; readers go on.

    Args:
        url: of its database.

    Raises:
        Transient: the database cannot be locked.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        with _unwritten_file(Path(parsed.database or "")) as snapshot:
            yield snapshot
        return
    engine = migrated(url)
    try:
        with _locked(engine.connect()) as connection:
            yield _TableSnapshot(connection)
    finally:
        engine.dispose()


class _FileSnapshot:
    """A snapshot of a database of SQLite."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def copy(self, target: Path) -> None:
        """Write the snapshot as a database of its own."""
        with closing(_opened(self._path)) as reader, closing(sqlite3.connect(target)) as database:
            reader.backup(database, pages=4096)
            database.execute("PRAGMA journal_mode=DELETE")
        disk.sync_file(target)


class _TableSnapshot:
    """A snapshot of the tables of another database."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def copy(self, target: Path) -> None:
        """Write the tables as a database of SQLite."""
        engine = migrated(f"sqlite:///{target}")
        try:
            with engine.begin() as writer:
                copy_rows(self._connection, writer)
        finally:
            engine.dispose()
        with closing(sqlite3.connect(target)) as database:
            database.execute("PRAGMA journal_mode=DELETE")
        disk.sync_file(target)


@contextmanager
def _unwritten_file(path: Path) -> Iterator[CatalogSnapshot]:
    with closing(_opened(path)) as writer:
        try:
            writer.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise Transient(f"the catalog {path.name} cannot be locked: {error}", hint="try again") from error
        try:
            yield _FileSnapshot(path)
        finally:
            writer.rollback()


@contextmanager
def _locked(connection: Connection) -> Iterator[Connection]:
    """Lock all tables of PostgreSQL against writers for a block.

    No lock is waited for while another is there, so that a writer of several tables and this cannot wait for each other.
    """
    names = ", ".join(f'"{each.name}"' for each in CatalogRow.metadata.sorted_tables)
    end = time.monotonic() + PATIENCE
    with connection:
        while True:
            try:
                connection.exec_driver_sql(f"LOCK TABLE {names} IN SHARE MODE NOWAIT")
                break
            except DBAPIError as error:
                connection.rollback()
                if getattr(error.orig, "sqlstate", "") != "55P03" or time.monotonic() > end:
                    raise Transient(f"the catalog cannot be locked: {error.orig}", hint="try again") from error
                time.sleep(TRY_EVERY)
        yield connection
        connection.rollback()


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
