"""TRUNCATE of tables of a real PostgreSQL server: the dataset is empty, too, and what comes after is there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.connectors.postgres_shop import ORDERS, followed, shop
from tests.connectors.shop_datasets import deployed, letters, rows_of, until
from tests.connectors.test_postgres_changes import COLUMNS, drained, is_equal, native, table
from tests.servers.postgres import PostgresServer
from umbel.connectors import Webhook, source
from umbel.connectors.polling import stop_polling
from umbel.connectors.staging import Stage
from umbel.datasets import Count, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs

__owner__ = "shop@example.com"
Server = PostgresServer


@pytest.fixture
def name(postgres_server: Server) -> Iterator[str]:
    yield from followed(postgres_server)


def test_a_truncated_table_is_empty(postgres_server: Server, name: str, tmp_path: Path) -> None:
    """Keys of the first copy and of changes, and one whose timestamp is ahead; keys come back with older timestamps."""
    run = partial(postgres_server.run, database=name)
    run(ORDERS, "INSERT INTO orders SELECT i, 'n' || i, '2024-01-01' FROM generate_series(1, 1000) i")
    with deployed(tmp_path, native(postgres_server, name, disorder="1000d")) as made:
        until(made, lambda: made.taken().get("Orders") == 1000)
        run("INSERT INTO orders VALUES (2000, 'x', now() + interval '1 second')", "TRUNCATE orders")
        until(made, lambda: rows_of(made, "Orders", COLUMNS) == [])
        run("INSERT INTO orders SELECT i, 'again', '2023-06-01' FROM generate_series(500, 510) i")
        until(made, lambda: len(rows_of(made, "Orders", COLUMNS)) == 11)
        assert [row[:2] for row in rows_of(made, "Orders", COLUMNS)] == [(i, "again") for i in range(500, 511)]
        assert letters(made) == []


def test_a_truncation_among_other_changes_of_a_transaction(postgres_server: Server, name: str, tmp_path: Path) -> None:
    run = partial(postgres_server.run, database=name)
    run(ORDERS, "CREATE TABLE parts(id bigint PRIMARY KEY, of bigint REFERENCES orders(id))")
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: drained(made))
        run("INSERT INTO orders VALUES (1, 'a', now()), (2, 'b', now()), (3, 'c', now())")
        with postgres_server.connect(name, autocommit=False) as connection:
            connection.execute("INSERT INTO orders VALUES (4, 'void', now())")
            connection.execute("UPDATE orders SET note = 'void' WHERE id = 1")
            connection.execute("DELETE FROM orders WHERE id = 2")
            connection.execute("TRUNCATE parts, orders RESTART IDENTITY CASCADE")
            connection.execute("INSERT INTO orders VALUES (1, 'new', now()), (2, 'gone', now()), (5, 'e', now())")
            connection.execute("DELETE FROM orders WHERE id = 2")
            connection.execute("UPDATE orders SET note = 'newer' WHERE id = 5")
        until(made, lambda: [row[:2] for row in rows_of(made, "Orders", COLUMNS)] == [(1, "new"), (5, "newer")])
        with postgres_server.connect(name, autocommit=False) as connection:
            connection.execute("TRUNCATE orders CASCADE")
            connection.rollback()
        run("INSERT INTO orders VALUES (6, 'f', now())")
        until(made, lambda: is_equal(made, postgres_server, name))
        assert len(rows_of(made, "Orders", COLUMNS)) == 3
        run(
            "BEGIN; TRUNCATE orders CASCADE; INSERT INTO orders VALUES (6, 'g', now()); TRUNCATE orders CASCADE; COMMIT"
        )
        until(made, lambda: rows_of(made, "Orders", COLUMNS) == [])
        assert letters(made) == []


def test_many_truncations_with_restarts(
    postgres_server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is applied once, also if it could not be staged at first, and if its part is not there any more."""
    monkeypatch.setattr("umbel.connectors.staging.RETAINED_FOR", 0.0)
    run = partial(postgres_server.run, database=name)
    run(ORDERS)
    append, full = Stage.append, [False]

    def appended(stage: Stage, frame: pl.DataFrame, facts: Any) -> Any:
        if full[0]:
            full[0] = False
            raise OSError("the disk is full")
        return append(stage, frame, facts)

    monkeypatch.setattr(Stage, "append", appended)
    with deployed(tmp_path, native(postgres_server, name, disorder="1000d")) as made:
        until(made, lambda: drained(made))
        for wave in range(4):
            full[0] = wave % 2 == 0
            run(
                f"INSERT INTO orders SELECT i, 'wave {wave}', '2024-01-01' FROM generate_series(11, 50) i",
                f"TRUNCATE orders; INSERT INTO orders VALUES ({wave}, 'kept {wave}', '2024-01-01')",
            )
            until(made, lambda wave=wave: [r[1] for r in rows_of(made, "Orders", COLUMNS)] == [f"kept {wave}"])
            stop_polling(tmp_path)
            run(f"INSERT INTO orders VALUES (100, 'late {wave}', '2024-01-01')")  # an older timestamp, after a restart
            until(made, lambda wave=wave: len(rows_of(made, "Orders", COLUMNS)) == 2)
            run("DELETE FROM orders WHERE id = 100")
        until(made, lambda: [row[:2] for row in rows_of(made, "Orders", COLUMNS)] == [(3, "kept 3")])
        assert letters(made) == []
        net = made.changes("Orders").group_by("id", "note").agg(pl.col("_weight").sum())
        assert set(net["_weight"]) <= {0, 1}


def test_a_dataset_with_rows_from_elsewhere_reports_it(postgres_server: Server, name: str, tmp_path: Path) -> None:
    """Which of its rows came from the table is not known."""
    run = partial(postgres_server.run, database=name)
    run(ORDERS, "INSERT INTO orders VALUES (1, 'a', now())")

    @source(Webhook(name="web").endpoint("orders"), disorder="1h", cdc="upsert")
    @source(shop(postgres_server, name).table("orders"), disorder="1h", cdc="native")
    @dataset(index=True)
    class Orders:
        id: int = field(key=True)
        note: str
        updated_at: datetime

    with deployed(tmp_path, Orders) as made:
        until(made, lambda: made.taken().get("Orders") == 1)
        run("TRUNCATE orders")
        until(made, lambda: letters(made))
        assert "the table was truncated: its rows stay" in letters(made)[0].reason
        assert [row[0] for row in rows_of(made, "Orders", COLUMNS)] == [1]


def test_tables_that_inherit_and_partitions(postgres_server: Server, name: str, tmp_path: Path) -> None:
    """All rows end with the whole table; truncating a table that inherits from it is reported."""
    run = partial(postgres_server.run, database=name)
    run(ORDERS, "CREATE TABLE large(PRIMARY KEY (id)) INHERITS (orders)")
    run("INSERT INTO orders VALUES (1, 'a', now())", "INSERT INTO large VALUES (2, 'b', now())")
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: made.taken().get("Orders") == 2)
        run("TRUNCATE large")
        until(made, lambda: letters(made))
        assert "a part of orders was truncated or dropped" in letters(made)[0].reason
        assert [row[0] for row in rows_of(made, "Orders", COLUMNS)] == [1, 2]
        run("INSERT INTO large VALUES (3, 'c', now())", "TRUNCATE orders")
        until(made, lambda: rows_of(made, "Orders", COLUMNS) == [] == table(postgres_server, name))


def test_readers_of_the_dataset_see_it(postgres_server: Server, name: str, tmp_path: Path) -> None:
    """A pipeline counts what is left; conditions of the source let it pass."""
    run = partial(postgres_server.run, database=name)
    run(ORDERS)
    conditions = {"where": lambda rows: rows["note"] != "no", "sample": 0.999999}
    notes = native(postgres_server, name, **conditions)

    @dataset(index=True)
    class Counts:
        note: str = field(key=True)
        count: int
        updated_at: datetime

        @pipeline
        @inputs(notes)
        def counts(cls, orders):
            return orders.groupby("note").aggregate(count=Count(window=Continuous("forever")))

    def count() -> Any:
        return made.lookup("Counts", [{"note": "x"}], [datetime(2100, 1, 1, tzinfo=UTC)])[0]["count"]

    with deployed(tmp_path, notes, Counts) as made:
        until(made, lambda: drained(made))
        run("INSERT INTO orders SELECT i, 'x', now() FROM generate_series(1, 100) i", "TRUNCATE orders")
        run("INSERT INTO orders SELECT i, 'x', now() FROM generate_series(1, 7) i")
        until(made, lambda: made.taken().get("Orders") == 108)
        assert count() == 7
