"""The worker and the server are killed again and again; in the end the datasets are what the tables are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.killing import Site, Worker, run
from tests.connectors.postgres_shop import shop
from tests.kills import Worker as SparkWorker
from tests.seeds import new_seed
from tests.servers.postgres import PostgresServer, started_or_missing

TABLES = (
    "CREATE TABLE orders(id bigserial PRIMARY KEY, note text NOT NULL, updated_at timestamptz DEFAULT clock_timestamp())",
    "CREATE TABLE people(LIKE orders INCLUDING ALL)",
    "CREATE TABLE events(n bigserial PRIMARY KEY, at timestamptz DEFAULT clock_timestamp())",
)


@pytest.fixture
def site() -> Iterator[Site]:
    for server in started_or_missing():
        yield site_of(server)


def site_of(server: PostgresServer) -> Site:
    return Site(
        server,
        shop(server, "postgres"),
        lambda rows: (*TABLES, f"INSERT INTO people(note) SELECT concat('n', i) FROM generate_series(1, {rows}) i"),
        lambda rows: f"generate_series(1, {rows}) i",
        "clock_timestamp()",
        lambda query: server.run("SET timezone = 'UTC'", query),
        "TRUNCATE people RESTART IDENTITY",
    )


@pytest.mark.parametrize(("rows", "kills"), [(30_000, 6), pytest.param(100_000, 20, marks=pytest.mark.nightly)])
def test_the_datasets_are_what_the_tables_are(site: Site, tmp_path: Path, rows: int, kills: int) -> None:
    run(tmp_path, site, rows, kills, Worker, new_seed())


@pytest.mark.nightly
def test_a_million_rows_through_spark(site: Site, tmp_path: Path) -> None:
    run(tmp_path, site, 1_000_000, 16, SparkWorker, new_seed())
