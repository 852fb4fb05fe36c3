"""TRUNCATE of tables of a real MariaDB server: the dataset is empty, too, and what comes after is there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.connectors.mysql_shop import database
from tests.connectors.shop_datasets import deployed, letters, rows_of, until
from tests.connectors.test_mysql_changes import COLUMNS, drained, is_equal, native
from tests.servers.mysql import MySQLServer
from umbel.connectors.polling import stop_polling

Server = MySQLServer
ORDERS = (
    "CREATE TABLE orders(id bigint AUTO_INCREMENT PRIMARY KEY, note text NOT NULL, updated_at datetime(6) NOT NULL)"
)


@pytest.fixture
def name(mysql_server: Server) -> Iterator[str]:
    return database(mysql_server)


@pytest.mark.parametrize("statement", ["TRUNCATE TABLE `orders`", "truncate /* all */ orders"])
def test_a_truncated_table_is_empty(mysql_server: Server, name: str, tmp_path: Path, statement: str) -> None:
    """Keys of the first copy and of changes; keys come back with older timestamps, as MariaDB counts them anew."""
    run = partial(mysql_server.run, database=name)
    run(ORDERS, "INSERT INTO orders(note, updated_at) SELECT 'n', '2024-01-01' FROM seq_1_to_1000")
    run(
        "CREATE TABLE others LIKE orders",
        "CREATE DATABASE IF NOT EXISTS beside",
        "CREATE TABLE IF NOT EXISTS beside.orders(n int)",
    )
    with deployed(tmp_path, native(mysql_server, name, disorder="1000d")) as made:
        until(made, lambda: made.taken().get("Orders") == 1000)
        run(
            "TRUNCATE others",
            "TRUNCATE beside.orders",
            "INSERT INTO orders(note, updated_at) VALUES ('x', '2024-01-02')",
        )
        until(made, lambda: is_equal(made, mysql_server, name))
        assert len(rows_of(made, "Orders", COLUMNS)) == 1001
        run(statement)
        until(made, lambda: rows_of(made, "Orders", COLUMNS) == [])
        run("INSERT INTO orders(note, updated_at) SELECT 'again', '2023-06-01' FROM seq_1_to_11")
        until(made, lambda: len(rows_of(made, "Orders", COLUMNS)) == 11)
        assert [row[:2] for row in rows_of(made, "Orders", COLUMNS)] == [(i, "again") for i in range(1, 12)]
        assert letters(made) == []


def test_many_truncations_within_a_second(mysql_server: Server, name: str, tmp_path: Path) -> None:
    """MariaDB tells the second of a commit only; and a reader that starts anew knows of the last one."""
    run = partial(mysql_server.run, database=name)
    run(ORDERS)
    with deployed(tmp_path, native(mysql_server, name, disorder="10000d")) as made:
        until(made, lambda: drained(made))
        for wave in range(3):
            for _ in range(10):
                run("INSERT INTO orders(note, updated_at) SELECT 'void', now(6) FROM seq_1_to_20")
                run("DELETE FROM orders WHERE id = 3", "UPDATE orders SET note = 'v' WHERE id = 4", "TRUNCATE orders")
            run(f"INSERT INTO orders(note, updated_at) SELECT 'kept {wave}', '2020-01-01' FROM seq_1_to_2")
            until(made, lambda wave=wave: [r[1] for r in rows_of(made, "Orders", COLUMNS)] == [f"kept {wave}"] * 2)
            stop_polling(tmp_path)
        assert letters(made) == []
