"""The catalog in PostgreSQL does what it does in SQLite: the same tests, and the loss of connections."""

from __future__ import annotations

import os
import socket
from uuid import uuid4

import pytest
from sqlalchemy import Connection

from tests.scenarios.server import HOST
from tests.servers.postgres import PASSWORD, USER, PostgresServer
from tests.sharing import migrates_step_by_step  # noqa: F401
from tests.unit.catalog.test_catalog import *  # noqa: F403 - its tests, over the URL of this module
from tests.unit.catalog.test_cloning import *  # noqa: F403 - as above
from tests.unit.catalog.test_definition_pieces import *  # noqa: F403 - as above
from tests.unit.catalog.test_texts import *  # noqa: F403 - as above
from umbel.catalog.catalog import Catalog
from umbel.catalog.engine import migrated


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


@pytest.mark.parametrize(("query", "milliseconds"), [("", 30_000), ("?tcp_user_timeout=5000", 5_000)])
def test_a_server_whose_machine_is_gone_is_noticed(url: str, query: str, milliseconds: int) -> None:
    engine = migrated(url + query)
    with engine.connect() as connection, socket.socket(fileno=_descriptor(connection)) as wire:
        unanswered = wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        idle, interval, count = (
            wire.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
    engine.dispose()
    assert unanswered == milliseconds
    assert idle + count * interval <= 60


def _descriptor(connection: Connection) -> int:
    """Return a descriptor of its own for the connection's socket."""
    return os.dup(connection.connection.driver_connection.pgconn.socket)  # type: ignore[union-attr]
