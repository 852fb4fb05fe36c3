"""Snapshots of a catalog in SQLite, while other processes write it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url

from umbel.errors import NotSupported, Transient
from umbel.state import disk

PATIENCE = 60.0
"""Seconds to wait for the writers of the catalog."""


def file_of(url: str) -> Path:
    """Return the file of a catalog in SQLite.

    Raises:
        NotSupported: it is in another database.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        raise NotSupported(
            f"the catalog is in {parsed.get_backend_name()}: umbel backs up catalogs in SQLite only",
            hint="dump the database while umbel is stopped, with a copy of its folder: docs/howto/backup.md",
        )
    return Path(parsed.database)


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """The catalog as it was when nobody could write it."""

    reader: sqlite3.Connection

    def copy(self, target: Path) -> None:
        """Write the snapshot as a database of its own, durably."""
        with closing(sqlite3.connect(target)) as database:
            self.reader.backup(database, pages=4096)
            database.execute("PRAGMA journal_mode=DELETE")
        disk.sync_file(target)


@contextmanager
def snapshot_of(path: Path) -> Iterator[CatalogSnapshot]:
    """Hold a snapshot of a catalog for a block.

    Args:
        path: of the database.

    Raises:
        Transient: the database cannot be read, or is written all the time.
    """
    with closing(_opened(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the snapshot is taken by the first read
        yield CatalogSnapshot(reader)


@contextmanager
def unwritten(path: Path) -> Iterator[None]:
    """Let nobody write a catalog during a block; readers go on.

    Args:
        path: of the database.

    Raises:
        Transient: the database cannot be locked.
    """
    with closing(_opened(path)) as writer:
        try:
            writer.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise Transient(f"the catalog {path.name} cannot be locked: {error}", hint="try again") from error
        try:
            yield
        finally:
            writer.rollback()


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
