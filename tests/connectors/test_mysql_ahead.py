"""Rows of a real MariaDB table whose timestamps are ahead of their commits or behind a deletion."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.connectors.mysql_shop import ORDERS, database
from tests.connectors.shop_datasets import deployed, letters, rows_of, until
from tests.connectors.test_mysql_changes import COLUMNS, drained, is_equal, native
from tests.servers.mysql import MySQLServer
from umbel.connectors.polling import stop_polling

Server = MySQLServer


@pytest.fixture
def name(mysql_server: Server) -> str:
    return database(mysql_server)


def test_what_comes_later_replaces_a_row_that_is_ahead(mysql_server: Server, name: str, tmp_path: Path) -> None:
    run = partial(mysql_server.run, database=name)
    run(ORDERS, "INSERT INTO orders VALUES (0, 'copied', utc_timestamp(6) + INTERVAL 1 DAY)")
    with deployed(tmp_path, native(mysql_server, name, disorder="1000d")) as made:
        until(made, lambda: drained(made) and is_equal(made, mysql_server, name))
        run("INSERT INTO orders SELECT seq, 'ahead', utc_timestamp(6) + INTERVAL 1 DAY FROM seq_1_to_4")
        until(made, lambda: is_equal(made, mysql_server, name))
        run(
            "UPDATE orders SET note = 'changed', updated_at = utc_timestamp(6) WHERE id IN (0, 1)",
            "DELETE FROM orders WHERE id IN (2, 3)",
            "UPDATE orders SET id = 5, updated_at = utc_timestamp(6) WHERE id = 4",
        )
        until(made, lambda: is_equal(made, mysql_server, name))
        run(
            "INSERT INTO orders VALUES (2, 'again', utc_timestamp(6))",
            "REPLACE INTO orders VALUES (3, 'again', utc_timestamp(6) + INTERVAL 2 DAY)",
            "REPLACE INTO orders VALUES (3, 'replaced', utc_timestamp(6))",
            "INSERT INTO orders VALUES (4, 'another', utc_timestamp(6))",
        )
        until(made, lambda: is_equal(made, mysql_server, name))
        assert letters(made) == []


def test_a_row_with_an_old_timestamp_comes_back_after_a_restart(
    mysql_server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The staged deletion is not there any more."""
    monkeypatch.setattr("umbel.connectors.staging.RETAINED_FOR", 0.0)
    run = partial(mysql_server.run, database=name)
    run(ORDERS, "INSERT INTO orders SELECT seq, 'first', '2024-01-01' FROM seq_1_to_10")
    with deployed(tmp_path, native(mysql_server, name, disorder="1000d")) as made:
        until(made, lambda: drained(made) and is_equal(made, mysql_server, name))
        run("DELETE FROM orders WHERE id < 5")
        until(made, lambda: is_equal(made, mysql_server, name))
        run("UPDATE orders SET note = 'changed' WHERE id = 10")  # the deletions are forgotten with it
        until(made, lambda: is_equal(made, mysql_server, name))
        stop_polling(tmp_path)
        run("INSERT INTO orders SELECT seq, 'again', '2023-06-01' FROM seq_1_to_3")
        until(made, lambda: is_equal(made, mysql_server, name))
        assert [row[:2] for row in rows_of(made, "Orders", COLUMNS)][:3] == [(i, "again") for i in (1, 2, 3)]
        assert letters(made) == []


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_any_changes_with_timestamps_of_any_clock(
    mysql_server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("umbel.connectors.staging.RETAINED_FOR", 0.0)
    chance = random.Random(seed)
    run = partial(mysql_server.run, database=name)
    run(ORDERS, "INSERT INTO orders SELECT seq, 'first', '2024-01-01' FROM seq_0_to_1")
    with deployed(tmp_path, native(mysql_server, name, disorder="1000d")) as made:
        until(made, lambda: drained(made) and is_equal(made, mysql_server, name))
        for step in range(60):
            at = datetime.now(UTC) + timedelta(days=chance.choice([-300, -20, -1, 0, 0, 1, 20]), microseconds=step)
            row, values = chance.randrange(3), f"'n{step}', '{at:%Y-%m-%d %H:%M:%S.%f}'"
            run(
                chance.choice(
                    [
                        f"DELETE FROM orders WHERE id = {row}",
                        f"REPLACE INTO orders VALUES ({row}, {values})",
                        f"INSERT IGNORE INTO orders VALUES ({row}, {values})",
                        f"UPDATE orders SET note = 'n{step}', updated_at = '{at:%Y-%m-%d %H:%M:%S.%f}' WHERE id = {row}",
                        f"UPDATE IGNORE orders SET id = {(row + 1) % 3} WHERE id = {row}",
                        *(["TRUNCATE orders"] if chance.random() < 0.3 else []),
                    ]
                )
            )
            if step % 6 == 5:
                until(made, lambda: is_equal(made, mysql_server, name), 60)
                if chance.random() < 0.5:
                    stop_polling(tmp_path)
        assert letters(made) == []
