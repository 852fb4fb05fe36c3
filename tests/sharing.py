"""What the tests of one process share instead of making it again: it is the same each time, and takes long.

Tests of what is shared use the original: `ForkServer` of `umbel.isolation.process`, and `upgrade`.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from sqlalchemy import Engine

from umbel.catalog import engine, tokens
from umbel.isolation.process import ForkServer
from umbel.runtime import extractors, guard
from umbel.transform import workers

upgrade = engine._upgrade
"""Migrates a catalog step by step."""
_LOCK = threading.Lock()


class SharedForkServer:
    """A fork server as others of this process with the same modules, environment and folder have it; see `ForkServer`."""

    _found: ClassVar[dict[tuple[str, ...], tuple[object, ForkServer]]] = {}

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._modules, self._environment = tuple(modules), dict(environment or {})
        self._server: ForkServer | None = None
        self._children: set[int] = set()
        self._owner = os.getpid()

    def fork(self) -> tuple[int, socket.socket]:
        """Return a new child's process id and the connection to it."""
        child, connection = self._one().fork()
        self._children.add(child)
        return child, connection

    def end(self, child: int) -> int:
        """Kill a child; return its exit code."""
        self._children.discard(child)
        return self._one().end(child)

    def start(self) -> None:
        """Start the fork server, if it is not running."""
        self._one().start()

    def close(self) -> None:
        """End the children of this one."""
        for child in list(self._children):
            self.end(child)
        self._server = None

    def _one(self) -> ForkServer:
        if self._owner != os.getpid():
            self._owner, self._server = os.getpid(), None
            self._children.clear()
        if self._server is None:
            with _LOCK:
                inherited = {**os.environ, "PYTEST_CURRENT_TEST": ""}, Path.cwd(), tuple(sys.path), os.getpid()
                known, self._server = self._found.get(self._modules, (None, None))
                if known != inherited or self._server is None:
                    self._server = ForkServer(self._modules, self._environment)
                    self._found[self._modules] = inherited, self._server
        return self._server


class Tables:
    """The tables of a new catalog, migrated once."""

    def __init__(self) -> None:
        self._migrated: sqlite3.Connection | None = None

    def copied(self, catalog: Engine) -> None:
        """Migrate a catalog; in place of this, copy the tables into one that has none."""
        if catalog.dialect.name != "sqlite":
            upgrade(catalog)
            return
        with catalog.connect() as connection:
            is_new = not connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar()
        if not is_new:
            upgrade(catalog)
            return
        with _LOCK:
            if self._migrated is None:
                upgrade(catalog)
                self._migrated = sqlite3.connect(":memory:", check_same_thread=False)
                with _opened(catalog) as file:
                    file.backup(self._migrated)
            else:
                with _opened(catalog) as file:
                    self._migrated.backup(file)


@contextmanager
def _opened(catalog: Engine) -> Iterator[sqlite3.Connection]:
    with catalog.connect() as connection:
        file = connection.connection.driver_connection
        assert isinstance(file, sqlite3.Connection)
        yield file


@pytest.fixture(autouse=True)
def migrates_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Migrate catalogs as a process of umbel does, in modules that import this."""
    monkeypatch.setattr(engine, "_upgrade", upgrade)


@contextmanager
def shared() -> Iterator[None]:
    """Share fork servers and the tables of new catalogs; make hashes of tokens cheap."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (extractors, guard, workers):
            patch.setattr(module, "ForkServer", SharedForkServer)
        patch.setattr(engine, "_upgrade", Tables().copied)
        patch.setattr(tokens, "_COST", 2)
        yield
