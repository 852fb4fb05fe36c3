"""The catalog in PostgreSQL does what it does in SQLite: the same tests, and the loss of connections."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.scenarios.server import HOST
from tests.servers.postgres import PASSWORD, USER, PostgresServer
from tests.unit.catalog.test_catalog import *  # noqa: F403 - its tests, over the URL of this module
from umbel.catalog.catalog import Catalog


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    """Return the URL of an empty database."""
    name = f"catalog_{uuid4().hex}"
    postgres_server.run(f"CREATE DATABASE {name}")
    return f"postgresql://{USER}:{PASSWORD}@{HOST}:{postgres_server.port}/{name}"


def test_a_lost_connection_is_replaced(url: str, postgres_server: PostgresServer) -> None:
    catalog = Catalog(url)
    assert catalog.commit("main", "one", b"1") == 1
    postgres_server.kill()
    postgres_server.start()
    assert catalog.revision() == 1
    assert catalog.commit("main", "two", b"2") > 1
    catalog.close()
