"""Changes of tables of a real PostgreSQL server, by logical replication: the dataset is what the table is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.connectors.postgres_shop import ORDERS, drop_slots, followed, shop
from tests.connectors.shop_datasets import deployed, letters, orders, process, rows_of, until
from tests.servers.postgres import PostgresServer
from umbel.connectors import ref, source
from umbel.connectors.polling import stop_polling
from umbel.connectors.postgres import stream
from umbel.connectors.postgres.stream import Stream
from umbel.connectors.staging import Stage
from umbel.datasets import dataset, field
from umbel.errors import InvalidValue, NotSupported, Transient
from umbel.runtime.maintenance import retire

__owner__ = "shop@example.com"
Server = PostgresServer
COLUMNS = ["id", "note", "updated_at"]


@pytest.fixture
def name(postgres_server: Server) -> Iterator[str]:
    yield from followed(postgres_server)


def table(server: Server, name: str) -> list[Any]:
    return server.run("SET timezone = 'UTC'", "SELECT id, note, updated_at FROM orders ORDER BY 1", database=name)


def native(server: Server, name: str, **options: Any) -> Any:
    return orders(shop(server, name), cdc="native", **options)


def is_equal(made: Any, server: Server, name: str) -> bool:
    return rows_of(made, "Orders", COLUMNS) == table(server, name)


def test_inserts_updates_and_deletions_follow_the_first_copy(
    postgres_server: Server, name: str, tmp_path: Path
) -> None:
    def run(*statements):
        return postgres_server.run(*statements, database=name)

    run(ORDERS, "INSERT INTO orders SELECT i, 'n' || i, now() FROM generate_series(1, 1000) i")
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: made.taken().get("Orders") == 1000)
        run(
            "INSERT INTO orders SELECT i, 'later', now() FROM generate_series(1001, 1010) i",
            "UPDATE orders SET note = 'changed' WHERE id <= 5",
            "DELETE FROM orders WHERE id BETWEEN 6 AND 10",
            "UPDATE orders SET id = id + 5000 WHERE id BETWEEN 11 AND 15",  # the old keys end
            "INSERT INTO orders VALUES (20000, 'one', now()); DELETE FROM orders WHERE id = 20000",
        )
        until(made, lambda: is_equal(made, postgres_server, name))
        assert letters(made) == []


def test_a_row_that_comes_back_with_an_older_timestamp_is_there(
    postgres_server: Server, name: str, tmp_path: Path
) -> None:
    """Deleted and inserted again, in one transaction and in two, as by tools that write a table anew."""

    def run(*statements):
        return postgres_server.run(*statements, database=name)

    run(ORDERS, "INSERT INTO orders SELECT i, 'n' || i, '2024-01-01' FROM generate_series(1, 20) i")
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: made.taken().get("Orders") == 20)
        run("CREATE TABLE copy AS SELECT * FROM orders", "DELETE FROM orders")
        until(made, lambda: rows_of(made, "Orders", COLUMNS) == [])
        stop_polling(tmp_path)
        run("INSERT INTO orders SELECT * FROM copy WHERE id <= 10")
        until(made, lambda: is_equal(made, postgres_server, name))
        with postgres_server.connect(name, autocommit=False) as connection:
            connection.execute("DELETE FROM orders")
            connection.execute("INSERT INTO orders SELECT id, 'again', updated_at FROM copy")
        until(made, lambda: is_equal(made, postgres_server, name))


def test_a_timestamp_that_goes_back_replaces_the_row(postgres_server: Server, name: str, tmp_path: Path) -> None:
    def run(*statements):
        return postgres_server.run(*statements, database=name)

    run(ORDERS, "INSERT INTO orders VALUES (1, 'a', '2024-02-01'), (2, 'b', '2024-01-01')")
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: made.taken().get("Orders") == 2)
        run("UPDATE orders SET note = 'c', updated_at = '2024-01-15' WHERE id = 1")
        until(made, lambda: is_equal(made, postgres_server, name))


def test_large_values_that_did_not_change(postgres_server: Server, name: str, tmp_path: Path) -> None:
    """Known with a full replica identity; without one such an update is a rejected record."""

    def run(*statements):
        return postgres_server.run(*statements, database=name)

    long = "SELECT string_agg(md5(i::text), '') FROM generate_series(1, 2000) i"
    run(ORDERS, "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL", f"INSERT INTO orders VALUES (1, ({long}), now())")
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: made.taken().get("Orders") == 1)
        run("UPDATE orders SET updated_at = now()")
        until(made, lambda: letters(made))
        assert "ALTER TABLE orders REPLICA IDENTITY FULL" in letters(made)[0].reason
        run("ALTER TABLE orders REPLICA IDENTITY FULL", "UPDATE orders SET updated_at = now()")
        until(made, lambda: is_equal(made, postgres_server, name))
        assert len(letters(made)) == 1


def test_a_keyless_dataset_takes_inserts_and_reports_the_rest(
    postgres_server: Server, name: str, tmp_path: Path
) -> None:
    def run(*statements):
        return postgres_server.run(*statements, database=name)

    run(ORDERS)

    @source(shop(postgres_server, name).table("orders"), disorder="1d", cdc="native", preproc={"n": ref("id")})
    @dataset
    class Events:
        n: int
        updated_at: datetime

    with deployed(tmp_path, Events) as made:
        until(made, lambda: made.deployment.catalog.counts() is not None and drained(made))
        run("INSERT INTO orders SELECT i, 'x', now() FROM generate_series(1, 10) i")
        run("UPDATE orders SET note = 'y' WHERE id = 1", "DELETE FROM orders WHERE id = 2", "TRUNCATE orders")
        until(made, lambda: made.taken().get("Events") == 13)
        assert sorted(made.changes("Events")["n"]) == list(range(1, 11))
        reasons = [each.reason for each in reversed(letters(made))]
        assert [each.split(" of ")[0] for each in reasons[:2]] == ["an update", "a deletion"]
        assert "truncated" in reasons[2]


def drained(made: Any) -> bool:
    """Return whether the first copy is complete."""
    return not any(each.is_loading for each in made.deployment._sources()[1])


def test_transactions_are_whole(postgres_server: Server, name: str, tmp_path: Path) -> None:
    """What is rolled back is not there, and of a transaction all or nothing."""
    postgres_server.run(ORDERS, database=name)
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: drained(made))
        with postgres_server.connect(name, autocommit=False) as connection:
            connection.execute("INSERT INTO orders SELECT i, 'never', now() FROM generate_series(1, 100) i")
            connection.rollback()
            for first in range(1, 5000, 1000):
                connection.execute(
                    f"INSERT INTO orders SELECT i, 'x', now() FROM generate_series({first}, {first + 999}) i"
                )
                process(made, 0.2)
                assert made.taken().get("Orders", 0) == 0
            connection.commit()
        seen = set[int]()
        until(made, lambda: seen.add(made.taken().get("Orders", 0)) or 5000 in seen)
        assert seen <= {0, 5000}


def test_changes_of_the_table_itself(postgres_server: Server, name: str, tmp_path: Path) -> None:
    """An added column is ignored, a retyped one is read as long as it fits, rows without a dropped one are rejected."""

    def run(*statements):
        return postgres_server.run(*statements, database=name)

    run(ORDERS)
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: drained(made))
        run("ALTER TABLE orders ADD more int", "INSERT INTO orders VALUES (1, 'a', now(), 5)")
        until(made, lambda: made.taken().get("Orders") == 1)
        run("ALTER TABLE orders ALTER id TYPE text", "INSERT INTO orders VALUES ('2', 'b', now()), ('x', 'c', now())")
        until(made, lambda: made.taken().get("Orders") == 3)
        assert [each.field for each in letters(made)] == ["id"]
        run("ALTER TABLE orders DROP note", "INSERT INTO orders VALUES ('4', now())")
        until(made, lambda: len(letters(made)) >= 2)
        assert any("note" in (each.field, each.reason) or "'note'" in each.reason for each in letters(made))


def test_a_lost_slot_is_reported(postgres_server: Server, name: str, tmp_path: Path) -> None:
    postgres_server.run(ORDERS, "INSERT INTO orders VALUES (1, 'a', now())", database=name)
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: made.taken().get("Orders") == 1)
        stop_polling(tmp_path)
        drop_slots(postgres_server, name)
        until(made, lambda: letters(made))
        assert (
            "is gone; changes since then are lost; hint: commit the dataset as a new version" in letters(made)[0].reason
        )


def test_the_slot_of_a_removed_source_is_dropped(postgres_server: Server, name: str, tmp_path: Path) -> None:
    postgres_server.run(ORDERS, database=name)
    slots = f"SELECT slot_name FROM pg_replication_slots WHERE database = '{name}'"
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: drained(made))
        place = made.deployment
        retire(place, place.graph(place.catalog.latest()))
        (first,) = postgres_server.run(slots)
        made.commit([orders(shop(postgres_server, name), name="Others", cdc="native")])
        until(made, lambda: len(list(place.graph(place.catalog.latest()).sources())) == 1)  # the new commit serves
        stop_polling(tmp_path)  # happens a minute after the last batch was planned
        until(made, lambda: retired(place) and first not in postgres_server.run(slots))
        until(made, lambda: len(postgres_server.run(slots)) == 1)  # an interrupted first copy makes its slot anew


def retired(place: Any) -> bool:
    """Drop the slots of removed sources; return whether that could be done."""
    try:
        retire(place, place.graph(place.catalog.latest()))
    except Transient:
        return False  # the server has not noticed yet that the stream has ended
    return True


def test_changes_that_were_not_confirmed_are_not_taken_twice(
    postgres_server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server sends again what it does not know to be on disk."""
    monkeypatch.setattr(Stream, "confirm", lambda *_, **__: None)
    postgres_server.run(ORDERS, database=name)

    @source(shop(postgres_server, name).table("orders"), disorder="1d", cdc="native")
    @dataset
    class Events:
        id: int
        updated_at: datetime

    with deployed(tmp_path, Events) as made:
        until(made, lambda: drained(made))
        for last in (10, 20):
            inserted = f"INSERT INTO orders SELECT i, 'x', now() FROM generate_series({last - 9}, {last}) i"
            postgres_server.run(inserted, database=name)
            until(made, lambda last=last: made.taken().get("Events", 0) >= last)
            stop_polling(tmp_path)
        assert sorted(made.changes("Events")["id"]) == list(range(1, 21))


def test_changes_that_are_not_on_disk_are_sent_again(
    postgres_server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is never told of more than was staged, nor of more than it has."""
    monkeypatch.setattr(stream, "CONFIRM", 0.0)
    run = partial(postgres_server.run, database=name)
    run(ORDERS)
    confirmed = f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE database = '{name}'"
    query = f"SELECT bool_and(confirmed_flush_lsn <= pg_current_wal_lsn()) FROM pg_replication_slots WHERE database = '{name}'"
    append, failures, positions = Stage.append, [0], list[int]()

    def appended(stage: Stage, frame: pl.DataFrame, facts: Any) -> Any:
        if failures[0]:
            failures[0] -= 1
            positions.append(facts["lsn"])
            raise OSError("the disk is full")
        positions.clear()
        return append(stage, frame, facts)

    def is_staged() -> bool:
        """Return whether the rows are there; before that, the server must not have been told so."""
        lost = positions[:1]
        if lost and run(confirmed)[0][0] >= lost[0]:
            assert not positions, "changes were confirmed that are not on disk"
        return is_equal(made, postgres_server, name) and not failures[0]

    monkeypatch.setattr(Stage, "append", appended)
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: drained(made))
        for wave in range(3):
            failures[0] = 1
            run(f"INSERT INTO orders VALUES ({wave}, 'a', now())", f"DELETE FROM orders WHERE id = {wave - 1}")
            until(made, is_staged)
            time.sleep(1.2)  # the stream is idle, and its end is confirmed
            assert run(query) == [(True,)]


def test_a_cursor_and_all_changes_exclude_each_other(postgres_server: Server, name: str, tmp_path: Path) -> None:
    connector = shop(postgres_server, name).table("orders", "updated_at")

    @source(connector, disorder="1d", cdc="native")
    @dataset
    class Events:
        updated_at: datetime

    with (
        pytest.raises(NotSupported, match="'native' reads all changes of a table, and it has a cursor"),
        deployed(tmp_path, Events),
    ):
        pass


def test_a_killed_server_loses_nothing(postgres_server: Server, name: str, tmp_path: Path) -> None:
    def run(*statements):
        return postgres_server.run(*statements, database=name)

    run(ORDERS)
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: drained(made))
        for wave in range(3):
            run(f"INSERT INTO orders SELECT i, 'n', now() FROM generate_series({wave * 100}, {wave * 100 + 99}) i")
            postgres_server.kill()
            postgres_server.start()
            run(f"DELETE FROM orders WHERE id = {wave * 100}")
        until(made, lambda: is_equal(made, postgres_server, name))


def test_what_the_source_lacks_is_said_at_commit(postgres_server: Server, name: str, tmp_path: Path) -> None:
    def run(*statements):
        return postgres_server.run(*statements, database=name)

    run("CREATE TABLE orders(id bigint, note text, updated_at timestamptz)", f"CREATE ROLE {name} LOGIN PASSWORD 'p'")
    run(f"GRANT SELECT ON orders TO {name}")

    def refused(message: str, **login: Any) -> None:
        read = orders(shop(postgres_server, name, **login), cdc="native")
        with pytest.raises(InvalidValue, match=message), deployed(tmp_path / "x", read):
            pass

    refused(r"(?s)do not say id.*ALTER TABLE \"orders\" REPLICA IDENTITY FULL")
    run("ALTER TABLE orders ADD PRIMARY KEY (id)")
    refused(f"(?s)may not replicate.*ALTER ROLE {name} REPLICATION", username=name, password="p")
    run(f"ALTER ROLE {name} REPLICATION")
    refused("(?s)may not publish.*CREATE PUBLICATION umbel_orders FOR TABLE", username=name, password="p")
    run('CREATE PUBLICATION umbel_orders FOR TABLE "orders" WITH (publish_via_partition_root = true)')
    with deployed(
        tmp_path / "y", orders(shop(postgres_server, name, username=name, password="p"), cdc="native")
    ) as made:
        until(made, lambda: drained(made))
        run("INSERT INTO orders VALUES (1, 'a', now())")
        until(made, lambda: is_equal(made, postgres_server, name))


def test_wal_level_is_checked(tmp_path: Path) -> None:
    from tests.servers import postgres

    with postgres.running(settings="wal_level = replica\n") as server:
        server.run(ORDERS)
        with (
            pytest.raises(InvalidValue, match=r"(?s)wal_level of the server is 'replica'.*ALTER SYSTEM SET wal_level"),
            deployed(tmp_path, orders(shop(server, "postgres"), cdc="native")),
        ):
            pass


@pytest.mark.parametrize("key", ["a", "b"])
def test_a_key_may_have_several_columns(postgres_server: Server, name: str, tmp_path: Path, key: str) -> None:
    def run(*statements):
        return postgres_server.run(*statements, database=name)

    run("CREATE TABLE pairs(a int, b text, at timestamptz, PRIMARY KEY (a, b))")

    @source(shop(postgres_server, name).table("pairs"), disorder="1d", cdc="native", preproc={"id": ref("a")})
    @dataset(index=True)
    class Pairs:
        id: int = field(key=True)
        b: str = field(key=True)
        at: datetime

    with deployed(tmp_path, Pairs) as made:
        until(made, lambda: drained(made))
        run(
            "INSERT INTO pairs SELECT i / 3, 'b' || i % 3, now() FROM generate_series(0, 11) i",
            "DELETE FROM pairs WHERE a = 1 AND b = 'b2'",
        )
        run(f"UPDATE pairs SET {key} = {'a + 10' if key == 'a' else 'b || 1'} WHERE a = 2")
        expected = run("SELECT a, b FROM pairs ORDER BY 1, 2")
        until(made, lambda: sorted(made_rows(made)) == expected)


def made_rows(made: Any) -> list[Any]:
    log = made.changes("Pairs")
    net = log.group_by("id", "b", "at").agg(pl.col("_weight").sum()).filter(pl.col("_weight") > 0)
    return list(net.select("id", "b").rows())
