"""Rows of a real PostgreSQL table whose timestamps are ahead of their commits or behind a deletion."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from tests.connectors.postgres_shop import ORDERS, followed
from tests.connectors.shop_datasets import deployed, letters, rows_of, until
from tests.connectors.test_postgres_changes import COLUMNS, drained, is_equal, native
from tests.servers.postgres import PostgresServer

Server = PostgresServer


@pytest.fixture
def name(postgres_server: Server) -> Iterator[str]:
    yield from followed(postgres_server)


def test_what_comes_later_replaces_a_row_that_is_ahead(postgres_server: Server, name: str, tmp_path: Path) -> None:
    run = partial(postgres_server.run, database=name)
    run(ORDERS, "INSERT INTO orders VALUES (0, 'copied', now() + interval '1 day')")
    with deployed(tmp_path, native(postgres_server, name, disorder="1000d")) as made:
        until(made, lambda: drained(made) and is_equal(made, postgres_server, name))
        run("INSERT INTO orders SELECT i, 'ahead', now() + interval '1 day' FROM generate_series(1, 4) i")
        until(made, lambda: is_equal(made, postgres_server, name))
        run(
            "UPDATE orders SET note = 'changed', updated_at = now() WHERE id IN (0, 1)",
            "DELETE FROM orders WHERE id IN (2, 3)",
            "UPDATE orders SET id = 5, updated_at = now() WHERE id = 4",
        )
        until(made, lambda: is_equal(made, postgres_server, name))
        run(
            "INSERT INTO orders VALUES (2, 'again', now()), (3, 'again', now() + interval '2 days')",
            "INSERT INTO orders VALUES (4, 'another', now())",
        )
        until(made, lambda: is_equal(made, postgres_server, name))
        assert letters(made) == []


def test_a_row_with_an_old_timestamp_comes_back_after_a_restart(
    postgres_server: Server, name: str, tmp_path: Path
) -> None:
    """The staged deletion is not there any more."""
    run = partial(postgres_server.run, database=name)
    run(ORDERS, "INSERT INTO orders SELECT i, 'first', '2024-01-01' FROM generate_series(1, 10) i")
    orders = native(postgres_server, name, disorder="1000d")
    with deployed(tmp_path, orders) as made:
        until(made, lambda: drained(made) and is_equal(made, postgres_server, name))
        run("DELETE FROM orders WHERE id < 5")
        until(made, lambda: is_equal(made, postgres_server, name))
        run("UPDATE orders SET note = 'changed' WHERE id = 10")
        until(made, lambda: is_equal(made, postgres_server, name))
    for part in sorted(tmp_path.glob("umbel/staged/Orders-*/*.rows"))[:-1]:
        part.unlink()  # as they expire some minutes after they were read
    run("INSERT INTO orders SELECT i, 'again', '2024-06-01' FROM generate_series(1, 3) i")
    with deployed(tmp_path, orders) as made:
        until(made, lambda: is_equal(made, postgres_server, name))
        assert [row[:2] for row in rows_of(made, "Orders", COLUMNS)][:3] == [(i, "again") for i in (1, 2, 3)]
        assert letters(made) == []
        net = made.changes("Orders").group_by("id", "note", "updated_at").agg(pl.col("_weight").sum())
        assert set(net["_weight"]) <= {0, 1}
