"""Cursors of Postgres in no order, as NaN."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.connectors.postgres_shop import database, shop
from tests.connectors.shop_datasets import deployed, letters, until
from tests.servers.postgres import PostgresServer
from umbel.api.dataset import redefined
from umbel.connectors import source
from umbel.datasets import dataset

__owner__ = "shop@example.com"
KINDS = {"single": "real", "double": "double precision", "exact": "numeric", "limited": "numeric(12, 3)"}


@pytest.fixture
def name(postgres_server: PostgresServer) -> Iterator[str]:
    return database(postgres_server)


def test_a_cursor_that_is_no_number_hides_no_later_row(
    postgres_server: PostgresServer, name: str, tmp_path: Path
) -> None:
    """Postgres has NaN above all numbers, and infinity below it: a read from there on finds nothing else."""
    columns = ", ".join(f"{column} {kind}" for column, kind in KINDS.items())
    postgres_server.run(f"CREATE TABLE events(n int, at timestamptz DEFAULT now(), {columns})", database=name)

    def insert(n: int, value: str, limited: str | None = None) -> None:
        values = ", ".join([f"'{value}'"] * 3 + [f"'{limited or value}'"])
        listed = ", ".join(KINDS)
        postgres_server.run(f"INSERT INTO events(n, {listed}) VALUES ({n}, {values})", database=name)

    datasets = {}
    for column in KINDS:

        @source(shop(postgres_server, name).table("events", column), disorder="2s", every="1s", cdc="append")
        @dataset
        class Rows:
            n: int
            at: datetime

        datasets[column.title()] = redefined(Rows, name=column.title())
    for n in range(5):
        insert(n, str(n))
    insert(100, "NaN")
    insert(101, "Infinity", "NaN")
    insert(102, "-Infinity", "NaN")
    with deployed(tmp_path, *datasets.values()) as made:
        until(made, lambda: made.taken() == dict.fromkeys(datasets, 5))
        insert(5, "5.5")
        until(made, lambda: made.taken() == dict.fromkeys(datasets, 6), 20)
        for each in datasets:
            assert sorted(made.changes(each)["n"]) == list(range(6))
        assert letters(made) == []
