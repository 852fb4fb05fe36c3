"""The servers that tests of connectors share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.postgres import PostgresServer, started_or_missing


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Return the PostgreSQL server that all tests of this process share."""
    yield from started_or_missing()
