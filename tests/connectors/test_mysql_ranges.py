"""The first copy of MariaDB's tables by ranges of the primary key, while rows change and processes are killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.killing import SCRIPT, Worker
from tests.connectors.mysql_copies import Copies
from tests.connectors.mysql_shop import ORDERS, database, shop
from tests.connectors.shop_datasets import deployed, letters, process, troubles, until
from tests.connectors.test_mysql_changes import drained, is_equal, native
from tests.connectors.test_mysql_server import purge
from tests.deployed import Deployed, wait_until
from tests.servers.mysql import MySQLServer
from umbel.connectors import ref, source
from umbel.connectors.mysql import replication
from umbel.connectors.staging import Stage
from umbel.datasets import dataset
from umbel.errors import InvalidValue

__owner__ = "shop@example.com"
SMALL = """
from umbel.connectors.mysql import copying, dividing
copying.LARGE, dividing.RANGE_ROWS, copying.SNAPSHOT_FOR = 100, 1000, 0.2
"""


@pytest.fixture
def name(mysql_server: MySQLServer) -> str:
    return database(mysql_server)


def filled(server: MySQLServer, name: str, rows: int = 10_000) -> Callable[..., list[Any]]:
    run = partial(server.run, database=name)
    run(ORDERS, f"INSERT INTO orders SELECT seq, concat('n', seq), '2024-01-01' FROM seq_1_to_{rows}")
    run("ANALYZE TABLE orders")
    return run


def events(server: MySQLServer, name: str) -> Any:
    """Return the dataset without keys of the table `orders`."""

    @source(shop(server, name).table("orders"), disorder="1d", cdc="native", preproc={"n": ref("id")})
    @dataset
    class Events:
        n: int
        note: str
        updated_at: datetime

    return Events


def test_rows_change_between_the_ranges(mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies) -> None:
    """On both sides of the bound of what is copied, and across it: each change is taken once."""
    run, chance = filled(mysql_server, name), random.Random(3)

    def step(_: int) -> None:
        for _ in range(5):
            key = chance.randrange(1, 10_000)
            other, new = chance.randrange(1, 10_000), chance.randrange(20_000, 1 << 30)
            run(
                f"UPDATE orders SET note = concat(note, '+'), updated_at = '2023-05-05' WHERE id BETWEEN {key} AND {key + 30}",
                f"DELETE FROM orders WHERE id BETWEEN {key + 10} AND {key + 20}",
                f"INSERT IGNORE INTO orders VALUES ({key + 15}, 'again', '2022-01-01'), ({new}, 'new', now(6))",
                f"INSERT INTO orders VALUES (-{new}, 'low', now(6))",
                f"UPDATE IGNORE orders SET id = {new + 1} WHERE id = {other}",
                f"UPDATE IGNORE orders SET id = {other} WHERE id = {new}",
                "BEGIN",
                f"DELETE FROM orders WHERE id = {other}",
                f"INSERT INTO orders VALUES ({other}, 'replaced', '2021-01-01')",
                f"DELETE FROM orders WHERE id = {10_001 - other}",
                f"INSERT INTO orders VALUES ({10_001 - other}, 'replaced', '2021-01-01')",
                "COMMIT",
            )

    copies.step = step
    with deployed(tmp_path, native(mysql_server, name, disorder="10000d")) as made:
        until(made, lambda: drained(made))
        until(made, lambda: is_equal(made, mysql_server, name))
        step(0)
        until(made, lambda: is_equal(made, mysql_server, name))
        assert letters(made) == []
    assert len(copies.ranges) == 1
    assert copies.ranges[0] >= 8


def each_row_is_there_once(made: Deployed, run: Any, new: int) -> None:
    """Insert a row, and compare the table with the dataset as soon as this has as many rows."""
    run(f"INSERT INTO orders VALUES ({new}, 'after', now(6))")
    table = [each for (each,) in run("SELECT id FROM orders ORDER BY id")]
    until(made, lambda: made.changes("Events").height >= len(table))
    assert sorted(made.changes("Events")["n"]) == table
    assert letters(made) == []


def test_a_keyless_dataset_has_each_row_once(
    mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies
) -> None:
    run = filled(mysql_server, name)

    def step(place: int) -> None:
        new = 20_000 + place
        run(f"INSERT INTO orders VALUES ({new}, 'new', now(6)), (-{new}, 'low', now(6))")
        run(f"UPDATE orders SET note = 'changed' WHERE id = {10_000 - place}")  # in the last range

    copies.step = step
    with deployed(tmp_path, events(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        each_row_is_there_once(made, run, 0)
    assert copies.ranges[0] >= 8


@pytest.mark.parametrize(("former", "new"), [(10, 9_990), (9_990, 10)])
def test_a_key_that_moves_across_the_copy_of_a_keyless_dataset(
    mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies, former: int, new: int
) -> None:
    """Such a row would be there twice, or never: the table is copied in one snapshot instead."""
    run = filled(mysql_server, name)
    run(f"DELETE FROM orders WHERE id = {new}")

    def step(place: int) -> None:
        if place == 3:
            run("INSERT INTO orders SELECT -seq, 'low', now(6) FROM seq_1_to_50")
            run(f"UPDATE orders SET id = {new} WHERE id = {former}")

    copies.step = step
    with deployed(tmp_path, events(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        each_row_is_there_once(made, run, 20_000)
    assert len(copies.ranges) == 1


@pytest.mark.parametrize(
    "statements",
    [
        ["TRUNCATE orders", "INSERT INTO orders SELECT seq, 'again', '2020-01-01' FROM seq_5000_to_6000"],
        ["CREATE TABLE other LIKE orders", "INSERT INTO other SELECT seq, 'other', now(6) FROM seq_1_to_5000",
         "RENAME TABLE orders TO former, other TO orders"],
        ["DROP TABLE orders", ORDERS, "INSERT INTO orders SELECT seq, 'other', now(6) FROM seq_4000_to_5000"],
        ["SET binlog_format = 'STATEMENT'", "UPDATE orders SET note = 'by a statement' WHERE id % 7 = 0"],
        ["ALTER TABLE orders MODIFY id decimal(20, 2)", "INSERT INTO orders VALUES (5.5, 'x', now(6))",
         "DELETE FROM orders WHERE id > 5 AND id < 6", "ALTER TABLE orders MODIFY id bigint"],
    ],
    ids=lambda each: each[0],
)  # fmt: skip
def test_the_table_is_emptied_or_replaced_while_it_is_copied(
    mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies, statements: list[str]
) -> None:
    """The copy begins anew, so that nothing is reported and nothing of the former table is left."""
    run, done = filled(mysql_server, name), list[int]()

    def step(place: int) -> None:
        if place == 4 and not done:
            done.append(place)
            run(*statements)

    copies.step = step
    with deployed(tmp_path, native(mysql_server, name, disorder="10000d")) as made:
        until(made, lambda: drained(made))
        until(made, lambda: is_equal(made, mysql_server, name))
        assert letters(made) == []


def test_a_table_that_is_emptied_again_and_again_is_copied_in_one_snapshot(
    mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies
) -> None:
    run = filled(mysql_server, name)

    def step(place: int) -> None:
        if place == 4:
            run("TRUNCATE orders", "INSERT INTO orders SELECT seq, 'again', now(6) FROM seq_1_to_10000")

    copies.step = step
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        until(made, lambda: is_equal(made, mysql_server, name))
        assert letters(made) == []
    assert len(copies.ranges) == replication.MOST_COPIES


def test_a_transaction_in_two_phases_ends_the_copy(
    mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies
) -> None:
    """It was the last of the log that the copy waits for."""
    run = filled(mysql_server, name)

    def step(place: int) -> None:
        if place == 1:
            run("CREATE TABLE other(n int PRIMARY KEY)")
            with mysql_server.connect(name) as connection:
                for each in ("XA START 'x'", "INSERT INTO other VALUES (1)", "XA END 'x'", "XA PREPARE 'x'"):
                    connection.query(each)
                connection.query("XA COMMIT 'x'")

    copies.step = step
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: drained(made), 30)
        until(made, lambda: is_equal(made, mysql_server, name))


def test_the_rows_that_are_left_are_the_lag(
    mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies
) -> None:
    filled(mysql_server, name)
    with deployed(tmp_path, native(mysql_server, name)) as made:
        ((reading,), lags) = [each.reading for each in made.deployment._sources()[1]], list[int]()
        copies.step = lambda _: lags.append(reading.lag(None).rows or 0)
        until(made, lambda: drained(made))
        until(made, lambda: is_equal(made, mysql_server, name))
    assert lags[1:] == sorted(lags[1:], reverse=True)
    assert 5_000 < lags[1] < 15_000
    assert lags[-1] < 3_000


def test_a_table_without_a_primary_key(mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies) -> None:
    run = partial(mysql_server.run, database=name)
    run("CREATE TABLE orders(id bigint, note varchar(20), updated_at datetime(6), KEY (id))")
    run("INSERT INTO orders SELECT seq % 1000, 'n', now(6) FROM seq_1_to_5000")
    with deployed(tmp_path, events(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        run("INSERT INTO orders VALUES (7, 'after', now(6))")
        until(made, lambda: made.changes("Events").height >= 5_001)
        assert sorted(made.changes("Events")["n"]) == sorted([7, *(each % 1000 for each in range(1, 5_001))])
    assert copies.ranges == []


@pytest.mark.parametrize("victim", ["reader", "server"])
def test_an_interrupted_copy_goes_on_after_its_last_range(
    mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies, victim: str
) -> None:
    run, seen = filled(mysql_server, name), list[int]()

    def step(place: int) -> None:
        run(f"DELETE FROM orders WHERE id IN ({1 + place}, {5000 + place})")
        run(
            f"INSERT INTO orders VALUES ({30_000 + place}, 'new', now(6)) ON DUPLICATE KEY UPDATE note = concat(note, '+')"
        )
        seen.append(place)
        if len(seen) in {3, 4, 8}:
            if victim == "reader":
                raise MemoryError
            mysql_server.kill()
            mysql_server.start()

    copies.step = step
    with deployed(tmp_path, native(mysql_server, name, disorder="10000d")) as made:
        until(made, lambda: drained(made))
        until(made, lambda: is_equal(made, mysql_server, name))
        assert letters(made) == []
    first = copies.ranges[0]
    assert copies.ranges == [first, first - 2, first - 2, first - 5]


def test_a_login_that_is_refused_in_the_middle_of_a_copy_leaves_no_range_out(
    mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies
) -> None:
    """Its report is staged behind complete ranges, and batches run before the copy goes on."""
    run, refusals = filled(mysql_server, name), [3, 1]

    def step(place: int) -> None:
        if refusals and place == refusals[0]:
            raise InvalidValue(f"access denied {refusals.pop(0)}", hint="correct the password")

    copies.step = step
    with deployed(tmp_path, events(mysql_server, name)) as made:
        until(made, lambda: troubles(tmp_path))
        process(made, 1.0)
        until(made, lambda: made.taken().get("Events", 0) >= 10_002)  # both reports count as taken
        run("INSERT INTO orders VALUES (20000, 'after', now(6))")
        until(made, lambda: 20_000 in made.changes("Events")["n"])
        assert sorted(made.changes("Events")["n"]) == [*range(1, 10_001), 20_000]
        assert {each.reason.partition(";")[0] for each in letters(made)} == {"access denied 3", "access denied 1"}
    assert len(copies.ranges) == 3


def test_what_was_read_of_an_interrupted_range_is_not_there_twice(
    mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, failed = filled(mysql_server, name), list[int]()

    def broken(self: Any, content: bytes, rows: int, facts: Any) -> Any:
        part = original(self, content, rows, facts)
        if part.number % 3 == 0 and len(failed) < 3:
            failed.append(part.number)
            raise OSError("the disk is full")
        return part

    original = Stage.append_encoded
    monkeypatch.setattr(Stage, "append_encoded", broken)
    with deployed(tmp_path, events(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        run("INSERT INTO orders VALUES (0, 'after', now(6))")
        until(made, lambda: made.changes("Events").height >= 10_001)
        assert sorted(made.changes("Events")["n"]) == list(range(10_001))
    assert len(failed) == 3
    assert len(copies.ranges) == 4


def test_a_log_that_was_purged_meanwhile(mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies) -> None:
    """What was copied cannot be completed by changes any more, so that the copy begins anew."""
    run, seen = filled(mysql_server, name), list[int]()

    def step(place: int) -> None:
        seen.append(place)
        if len(seen) == 4:
            run("DELETE FROM orders WHERE id < 500", "FLUSH BINARY LOGS", "DELETE FROM orders WHERE id < 600")
            run("FLUSH BINARY LOGS")
            purge(mysql_server)
            raise MemoryError

    copies.step = step
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        until(made, lambda: is_equal(made, mysql_server, name))
        assert letters(made) == []
    assert copies.ranges[0] == copies.ranges[1]


def test_a_dataset_with_another_key_than_the_table(
    mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies
) -> None:
    """Rows of one key may be in several ranges, so that one snapshot is read."""
    run = partial(mysql_server.run, database=name)
    run(
        "CREATE TABLE orders(number bigint AUTO_INCREMENT PRIMARY KEY, id bigint, note varchar(20), updated_at datetime(6))",
        "INSERT INTO orders(id, note, updated_at) SELECT seq, 'n', '2024-01-01' FROM seq_1_to_5000",
    )
    with deployed(tmp_path, native(mysql_server, name, disorder="10000d")) as made:
        until(made, lambda: drained(made))
        run("DELETE FROM orders WHERE id = 5", "INSERT INTO orders(id, note, updated_at) VALUES (5, 'x', '2024-01-01')")
        until(made, lambda: is_equal(made, mysql_server, name))
    assert copies.ranges == []


@pytest.mark.parametrize(("rows", "kills"), [(40_000, 2), pytest.param(150_000, 5, marks=pytest.mark.nightly)])
def test_ranges_are_read_by_processes_while_rows_change_and_the_worker_is_killed(
    mysql_server: MySQLServer, name: str, tmp_path: Path, rows: int, kills: int
) -> None:
    run, stop = filled(mysql_server, name, rows), threading.Event()

    def write() -> None:
        chance, number = random.Random(5), rows + 50_000
        while not stop.is_set():
            some, number = chance.randrange(rows), number + 10
            run(
                f"INSERT INTO orders SELECT seq, 'new', now(6) FROM seq_{number}_to_{number + 9}",
                f"UPDATE orders SET note = concat(note, '+'), updated_at = now(6) WHERE id BETWEEN {some} AND {some + 40}",
                f"DELETE FROM orders WHERE id BETWEEN {some + 10} AND {some + 20}",
                f"UPDATE IGNORE orders SET id = {rows - some} WHERE id = {some + 30}",
                f"INSERT IGNORE INTO orders VALUES ({some + 15}, 'again', '2024-06-01')",
            )

    writer, worker = threading.Thread(target=write), Worker(tmp_path / "umbel", tmp_path / "log")
    worker._command[2] = SMALL + SCRIPT
    with deployed(tmp_path, native(mysql_server, name, disorder="10000d")) as made:
        writer.start()
        try:
            (reading,), known = [each.reading for each in made.deployment._sources()[1]], list[str]()
            for _ in range(kills):
                worker.mind()
                least = len(known) + 4
                wait_until(partial(has_positions, reading, least), (tmp_path / "log").read_text, 60)
                worker.end()
                found = positions(reading)
                assert found[: len(known)] == known
                known = found
            worker.mind()
            wait_until(lambda: drained(made), (tmp_path / "log").read_text, 150)
            stop.set()
            writer.join()
            wait_until(lambda: is_equal(made, mysql_server, name), (tmp_path / "log").read_text, 60)
            assert letters(made) == []
        finally:
            stop.set()
            worker.end()


def positions(reading: Any) -> list[str]:
    """Return the positions of the ranges that are complete; many for a copy that is."""
    state = reading.stage.state()
    return ["done"] * 10_000 if state.get("loaded") else list(state.get("copy", {}).get("positions", []))


def has_positions(reading: Any, least: int) -> bool:
    """Return whether some ranges are complete."""
    return len(positions(reading)) >= least
