"""The worker and the server are killed again and again; in the end the datasets are what the tables are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.killing import Site, Worker, run
from tests.connectors.mysql_shop import shop
from tests.kills import Worker as SparkWorker
from tests.seeds import new_seed
from tests.servers.mysql import MySQLServer, started_or_missing

TABLES = (
    """CREATE TABLE orders(id bigint AUTO_INCREMENT PRIMARY KEY, note text NOT NULL, updated_at datetime(6) DEFAULT sysdate(6),
       KEY (updated_at))""",
    "CREATE TABLE people(id bigint AUTO_INCREMENT PRIMARY KEY, note text NOT NULL, updated_at datetime(6) DEFAULT sysdate(6))",
    "CREATE TABLE events(n bigint AUTO_INCREMENT PRIMARY KEY, at datetime(6) DEFAULT sysdate(6))",
)


class InDatabase:
    """A server whose statements run in one database."""

    def __init__(self, server: MySQLServer, name: str) -> None:
        server.run(f"CREATE DATABASE {name}")
        self.kill, self.start, self.run = server.kill, server.start, partial(server.run, database=name)

    def read(self, query: str) -> list[Any]:
        """Return the rows of a query, with instants in UTC."""
        return [
            tuple(each.replace(tzinfo=UTC) if isinstance(each, datetime) else each for each in row)
            for row in self.run(query)
        ]


@pytest.fixture
def site() -> Iterator[Site]:
    for server in started_or_missing():
        database = InDatabase(server, "shop")
        yield Site(
            database,
            shop(server, "shop"),
            lambda rows: (*TABLES, f"INSERT INTO people(note) SELECT concat('n', seq) FROM seq_1_to_{rows}"),
            lambda rows: f"(SELECT seq i FROM seq_1_to_{rows}) numbers",
            "sysdate(6)",
            database.read,
        )


@pytest.mark.nightly
def test_a_hundred_thousand_rows(site: Site, tmp_path: Path) -> None:
    run(tmp_path, site, 100_000, 20, Worker, new_seed())


@pytest.mark.nightly
def test_a_million_rows_through_spark(site: Site, tmp_path: Path) -> None:
    run(tmp_path, site, 1_000_000, 20, SparkWorker, new_seed())
