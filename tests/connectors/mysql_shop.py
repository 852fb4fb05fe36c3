"""Tables of a shop in a MariaDB server."""

from __future__ import annotations

from itertools import count
from typing import Any

from tests.scenarios.server import HOST
from tests.servers.mysql import PASSWORD, USER, MySQLServer
from umbel.connectors import MySQL

_NUMBERS = count()
ORDERS = "CREATE TABLE orders(id bigint PRIMARY KEY, note text NOT NULL, updated_at datetime(6) NOT NULL)"


def database(server: MySQLServer) -> str:
    """Make an empty database for one test; return its name."""
    name = f"shop{next(_NUMBERS)}"
    server.run(f"CREATE DATABASE {name}")
    return name


def shop(server: MySQLServer, name: str, **options: Any) -> MySQL:
    """Return the source for a database."""
    login = {"username": USER, "password": PASSWORD, "host": HOST, "port": server.port}
    return MySQL(name="shop", db_name=name, **{**login, **options})


def user(server: MySQLServer, name: str, *grants: str) -> dict[str, str]:
    """Make a user; return the login."""
    server.run(f"CREATE USER {name} IDENTIFIED BY 'p'", *(f"GRANT {each} TO {name}" for each in grants))
    return {"username": name, "password": "p"}
