"""Servers that the tests of connectors share: one of each kind for a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.connectors.cluster import cluster_database, cluster_s3, cluster_urls  # noqa: F401 - fixtures
from tests.connectors.loaded_tables import database  # noqa: F401 - fixture
from tests.connectors.mongo_servers import (  # noqa: F401 - fixtures
    mongo,
    mongo_in_memory,
    mongo_lasting,
    mongo_on_disk,
    mongo_typed,
)
from tests.connectors.mysql_copies import copies  # noqa: F401 - fixture
from tests.connectors.sink_tables import made, tables  # noqa: F401 - fixtures
from tests.s3server import S3Server, started_or_skipped
from tests.servers.kafka import Broker, started_or_missing
from tests.servers.mysql import MySQLServer
from tests.servers.mysql import started_or_missing as mysql_or_missing
from tests.servers.postgres import PostgresServer
from tests.servers.postgres import started_or_missing as postgres_or_missing


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Return the PostgreSQL server that all tests of this process share."""
    yield from postgres_or_missing()


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MySQLServer]:
    """Return the MariaDB server that all tests of this process share."""
    yield from mysql_or_missing()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker."""
    yield from started_or_missing(tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Return the S3 server that all tests of this process share."""
    yield from started_or_skipped(tmp_path_factory.mktemp("s3"))
