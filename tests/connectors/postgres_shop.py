"""Tables of a shop in a PostgreSQL server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

from tests.scenarios.server import HOST
from tests.servers.postgres import PASSWORD, USER, PostgresServer
from umbel.connectors import Postgres

_NUMBERS = count()


def database(server: PostgresServer) -> str:
    """Make an empty database for one test; return its name."""
    name = f"shop{next(_NUMBERS)}"
    server.run(f"CREATE DATABASE {name}")
    return name


def followed(server: PostgresServer) -> Iterator[str]:
    """Make an empty database for one test that follows changes; yield its name.

    Its slots are dropped after the test: they would retain the server's log.
    """
    name = database(server)
    yield name
    drop_slots(server, name)


def drop_slots(server: PostgresServer, name: str) -> None:
    query = f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = '{name}' AND active"
    server.run(query)
    for _ in range(50):
        try:
            server.run(
                f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{name}'"
            )
        except Exception:
            time.sleep(0.1)
        else:
            return


def shop(server: PostgresServer, name: str, **options: Any) -> Postgres:
    """Return the source for a database."""
    login = {"username": USER, "password": PASSWORD, "host": HOST, "port": server.port}
    return Postgres(name="shop", db_name=name, **{**login, **options})


ORDERS = "CREATE TABLE orders(id bigint PRIMARY KEY, note text NOT NULL, updated_at timestamptz NOT NULL)"
