"""The first load of tables in ranges of the cursor: each row once, in order, by a bounded number of connections."""

from __future__ import annotations

import itertools
import logging
import random
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.connectors import postgres_shop
from tests.connectors.killing import SCRIPT, Worker
from tests.connectors.loaded_tables import Database, analyzed, events, filled, low, made, reader_of
from tests.connectors.shop_datasets import deployed, letters, orders, rows_of, until
from tests.deployed import wait_until
from tests.servers.postgres import PostgresServer
from umbel.connectors.postgres import cursor as postgres_cursor
from umbel.connectors.postgres import pages, replication
from umbel.connectors.sql import parallel
from umbel.connectors.sql.ranges import connections
from umbel.errors import InvalidValue, Transient

__owner__ = "shop@example.com"
SMALL = """
from umbel.connectors.mysql import cursor, dividing
from umbel.connectors.postgres import copying, cursor as postgres
cursor.LARGE, dividing.RANGE_ROWS = 100, 1000
postgres.LARGE, postgres.RANGE_BYTES = 100, 1 << 17
"""


@pytest.mark.parametrize("cursor", ["moment", "exact", "word", "day"])
def test_each_row_once_and_in_order(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture, cursor: str
) -> None:
    """Also rows with equal cursors, at the borders of ranges, and without any."""
    made(database, cursor)
    filled(database, 20_000)
    database.run("INSERT INTO events(n, at) SELECT 0, at FROM events WHERE n = 1")
    analyzed(database)
    with caplog.at_level(logging.INFO, "umbel.work"), deployed(tmp_path, events(database, cursor, "40d")) as worker:
        until(worker, lambda: worker.taken().get("Events", 0) >= 20_000)
        filled(database, 100, first=20_001)
        until(worker, lambda: worker.taken()["Events"] >= 20_100)
        assert sorted(worker.changes("Events")["n"]) == list(range(1, 20_101))
        assert letters(worker) == []
        (source,) = worker.deployment._sources()[1]
        found = [source.reading.stage.read(each)["n"].cast(int).to_list() for each in source.reading.stage.numbers()]
    assert any(" ranges by 2 connections" in each.message for each in caplog.records)
    order = [number for part in found for number in part][:20_000]
    assert max(b - a for a, b in itertools.pairwise(order)) < 4000, "the rows of a cursor may be in any order"
    assert len(found) > 3


def test_unbalanced_cursors_make_balanced_ranges(database: Database, tmp_path: Path) -> None:
    """Nine tenths of the rows are in a millionth of the range of values."""
    made(database, "number")
    filled(database, 18_000)
    filled(database, 2_000, first=20_001, value="i * 900000000000")
    analyzed(database)
    reader = reader_of(database, tmp_path, "number")
    with reader.snapshot() as snapshot:
        ranges = snapshot.ranges(reader.start(snapshot, []), 4)
        assert isinstance(ranges, list), ranges
        counts = [
            sum(rows.height for rows in snapshot.rows(reader.columns_of(snapshot.table), low(reader, snapshot), each))
            for each in ranges
        ]
    assert sum(counts) == 20_000
    assert len(counts) > 4
    assert max(counts) < 8000


@pytest.mark.parametrize(
    ("rows", "indexes", "reason"),
    [
        (20_000, (), "no index on number"),
        (50, ("number",), "smaller than|less than"),
        (0, ("number",), "smaller than|less than"),
    ],
)
def test_one_connection_reads_what_cannot_be_divided(
    database: Database,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    rows: int,
    indexes: tuple[str, ...],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_cursor, "LARGE", 100_000)
    made(database, *indexes)
    if rows:
        filled(database, rows)
    analyzed(database)
    with caplog.at_level(logging.INFO, "umbel.work"), deployed(tmp_path, events(database, "number", "40d")) as worker:
        until(worker, lambda: worker.taken().get("Events", 0) == rows)
        until(worker, lambda: caplog.records)
        filled(database, 10, first=30_001)
        until(worker, lambda: worker.taken().get("Events", 0) == rows + 10)
    assert any(re.search(f"read by one connection: .*({reason})", each.message) for each in caplog.records)


def test_one_value_for_all_rows(database: Database, tmp_path: Path) -> None:
    made(database, "number")
    filled(database, 5000, value="7")
    analyzed(database)
    with deployed(tmp_path, events(database, "number")) as worker:
        until(worker, lambda: worker.taken().get("Events", 0) >= 5000)
        assert sorted(worker.changes("Events")["n"]) == list(range(1, 5001))


def test_rows_that_come_and_commit_late_meanwhile(database: Database, tmp_path: Path) -> None:
    database.run(
        "CREATE TABLE orders(id bigint PRIMARY KEY, note varchar(20) NOT NULL, updated_at timestamp(6) NOT NULL)",
        "CREATE INDEX orders_updated ON orders (updated_at)",
    )
    now = "clock_timestamp()" if "Postgres" in type(database.shop).__name__ else "SYSDATE(6)"
    database.run(f"INSERT INTO orders SELECT i, 'first', {now} FROM {database.sequence(1, 30_000)}")
    stop, chance = threading.Event(), random.Random(7)

    def write() -> None:
        number = 30_001
        while not stop.is_set():
            database.run(f"INSERT INTO orders SELECT i, 'new', {now} FROM {database.sequence(number, number + 99)}")
            some = chance.randrange(30_000)
            database.run(
                f"UPDATE orders SET note = 'changed', updated_at = {now} WHERE id BETWEEN {some} AND {some + 50}"
            )
            number += 100

    writer = threading.Thread(target=write)
    with deployed(tmp_path, orders(database.shop, disorder="30s")) as worker:
        writer.start()
        until(worker, lambda: worker.taken().get("Orders", 0) >= 31_000)
        stop.set()
        writer.join()

        def equal() -> bool:
            table = sorted(map(tuple, database.run("SELECT id, note FROM orders")))
            return rows_of(worker, "Orders", ["id", "note"]) == table

        until(worker, equal)
        assert letters(worker) == []


@pytest.mark.parametrize(("rows", "kills"), [(50_000, 2), pytest.param(150_000, 6, marks=pytest.mark.nightly)])
def test_a_killed_worker_goes_on_where_it_was(database: Database, tmp_path: Path, rows: int, kills: int) -> None:
    made(database, "number")
    filled(database, rows)
    analyzed(database)
    with deployed(tmp_path, events(database, "number", "40d")) as place:
        log = tmp_path / "log"
        worker = Worker(tmp_path / "umbel", log)
        worker._command[2] = SMALL + SCRIPT
        chance = random.Random()
        try:
            for _ in range(kills):
                worker.mind()
                time.sleep(chance.uniform(1.5, 3.0))
                worker.end()

            def is_done() -> bool:
                worker.mind()
                return place.changes("Events").height >= rows

            wait_until(is_done, lambda: log.read_text()[-3000:], 120)
            assert sorted(place.changes("Events")["n"]) == list(range(1, rows + 1))
            assert letters(place) == []
        finally:
            worker.end()


def test_a_process_that_is_killed_is_begun_again(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(database, "number")
    filled(database, 20_000)
    analyzed(database)
    begun, original = list[Any](), parallel._Process.send

    def killed(self: Any, message: Any) -> None:
        begun.append(self)
        if len(begun) == 3:
            self._process.kill()
        original(self, message)

    monkeypatch.setattr(parallel._Process, "send", killed)
    with deployed(tmp_path, events(database, "number", "40d")) as worker:
        until(worker, lambda: worker.taken().get("Events", 0) >= 20_000)
        assert sorted(worker.changes("Events")["n"]) == list(range(1, 20_001))


def test_the_copy_before_changes_is_one_snapshot(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read by pages, while rows are inserted, changed and deleted."""
    for setting, value in (("LARGE", 100), ("RANGE_BYTES", 1 << 17)):
        monkeypatch.setattr(pages, setting, value)
    name = postgres_shop.database(postgres_server)
    postgres_server.run(
        postgres_shop.ORDERS,
        "INSERT INTO orders SELECT i, 'n' || i, now() FROM generate_series(1, 30000) i",
        database=name,
    )
    copied, original, stop = list[Any](), replication.read_ranges, threading.Event()

    def watched(reader: Any, ranges: Any, *options: Any) -> Any:
        copied.append(ranges)
        yield from original(reader, ranges, *options)

    def write() -> None:
        number = 30_000
        while not stop.is_set():
            number += 100
            postgres_server.run(
                f"INSERT INTO orders SELECT i, 'new', now() FROM generate_series({number - 99}, {number}) i",
                f"UPDATE orders SET note = 'changed', id = -id WHERE id = {number % 30_000 + 1}",
                f"DELETE FROM orders WHERE id BETWEEN {number % 20_000} AND {number % 20_000 + 40}",
                database=name,
            )

    monkeypatch.setattr(replication, "read_ranges", watched)
    writer = threading.Thread(target=write)
    with deployed(tmp_path, orders(postgres_shop.shop(postgres_server, name), cdc="native", disorder="1d")) as worker:
        writer.start()
        until(worker, lambda: worker.taken().get("Orders", 0) >= 30_000)
        stop.set()
        writer.join()
        table = postgres_server.run("SELECT id, note FROM orders ORDER BY id", database=name)
        until(worker, lambda: rows_of(worker, "Orders", ["id", "note"]) == table)
        assert letters(worker) == []
    assert [len(each) > 8 for each in copied] == [True]


def test_a_wrong_number_of_connections_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("0", "-1", "many", "65", "²"):
        monkeypatch.setenv("UMBEL_FIRST_READ_CONNECTIONS", wrong)
        with pytest.raises(InvalidValue, match="a number from 1 to 64"):
            connections()
    monkeypatch.setenv("UMBEL_FIRST_READ_CONNECTIONS", "7")
    assert connections() == 7


def test_errors_of_a_process_are_those_of_the_source(database: Database, tmp_path: Path) -> None:
    from umbel.connectors.sql.cursor import CursorRanges
    from umbel.connectors.sql.ranges import Range

    made(database, "number")
    filled(database, 100)
    reader = reader_of(database, tmp_path, "number")
    with reader.snapshot() as snapshot:
        columns = reader.columns_of(snapshot.table)
        ranges = CursorRanges(reader, snapshot.table, columns, low(reader, snapshot))
    database.run("DROP TABLE events")
    with pytest.raises((InvalidValue, Transient), match="events"):
        list(parallel.read_ranges(ranges.portable(), [Range(None, "5", True)], 4, lambda: False))
