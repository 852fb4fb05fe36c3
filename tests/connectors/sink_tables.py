"""Tables in Postgres that sinks of the shop write to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.postgres_shop import database
from tests.connectors.postgres_shop import shop as postgres_source
from tests.connectors.sink_shop import Shop
from tests.servers.postgres import PostgresServer
from umbel.runtime.deliveries import SinkDelivery, sinks


class Tables:
    """Two tables for the datasets of the shop."""

    def __init__(self, server: PostgresServer) -> None:
        self._server, self.name = server, database(server)
        self.run(
            'CREATE TABLE large("user" bigint, amount float8, at timestamptz, later timestamptz)',
            'CREATE TABLE norse("user" bigint PRIMARY KEY, city text UNIQUE, at timestamptz, later timestamptz)',
        )

    def run(self, *statements: str) -> list[Any]:
        return self._server.run(*statements, database=self.name)

    def connectors(self, **login: str) -> tuple[Any, Any]:
        source = postgres_source(self._server, self.name, **login)
        return source.table("large"), source.table("norse")

    def amounts(self) -> list[Any]:
        return [row[0] for row in self.run("SELECT amount FROM large ORDER BY amount")]


@pytest.fixture
def tables(postgres_server: PostgresServer) -> Tables:
    return Tables(postgres_server)


@pytest.fixture
def made(tables: Tables, tmp_path: Path) -> Iterator[Shop]:
    with contextlib.closing(Shop(tmp_path, *tables.connectors())) as found:
        yield found


def deliver(made: Shop) -> None:
    """Deliver as the sinks of the newest revision say."""
    made.drain()
    deployment = made.deployed.deployment
    for each in sinks(deployment, deployment.catalog.revision()).values():
        SinkDelivery(deployment, each).step()


def events(made: Shop) -> str:
    """Return the texts of all events."""
    return "\n".join(each.text for each in made.deployed.deployment.catalog.events())
