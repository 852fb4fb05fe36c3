"""Tables of a shop in a PostgreSQL server."""

from __future__ import annotations

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


def shop(server: PostgresServer, name: str, **options: Any) -> Postgres:
    """Return the source for a database."""
    login = {"username": USER, "password": PASSWORD, "host": HOST, "port": server.port}
    return Postgres(name="shop", db_name=name, **{**login, **options})


ORDERS = "CREATE TABLE orders(id bigint PRIMARY KEY, note text NOT NULL, updated_at timestamptz NOT NULL)"
