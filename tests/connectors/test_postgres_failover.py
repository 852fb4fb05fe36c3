"""A standby of a real PostgreSQL server that takes over: another timeline, with or without the slot and the last changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.postgres_shop import ORDERS, shop
from tests.connectors.shop_datasets import deployed, letters, orders, rows_of, until
from tests.deployed import wait_until
from tests.servers import postgres
from umbel.connectors.polling import stop_polling

Server = postgres.PostgresServer
COLUMNS = ["id", "note"]


@pytest.fixture
def primary() -> Iterator[Server]:
    """Return a server with a table of one row."""
    with postgres.running() as server:
        server.run(ORDERS, "INSERT INTO orders VALUES (1, 'a', now())")
        yield server


def native(server: Server) -> Any:
    return orders(shop(server, "postgres"), cdc="native")


def insert(server: Server, number: int) -> None:
    server.run(f"INSERT INTO orders VALUES ({number}, 'a', now())")


def is_equal(made: Any, server: Server) -> bool:
    return rows_of(made, "Orders", COLUMNS) == server.run("SELECT id, note FROM orders ORDER BY 1")


def take_over(primary: Server, standby: Server) -> None:
    """Let a standby take over the address of its primary."""
    primary.kill()
    standby.run("SELECT pg_promote()")
    standby.kill()
    standby.port = primary.port
    standby.start()


def caught_up(primary: Server, standby: Server) -> None:
    end = primary.run("SELECT pg_current_wal_lsn()")[0][0]
    query = f"SELECT pg_last_wal_replay_lsn() >= '{end}'"
    wait_until(lambda: standby.run(query) == [(True,)], lambda: standby.log.read_text()[-2000:])


def disconnect(standby: Server) -> None:
    """Let a standby receive nothing more."""
    standby.run("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
    query = "SELECT count(*) FROM pg_stat_wal_receiver"
    wait_until(lambda: standby.run(query) == [(0,)], lambda: standby.log.read_text()[-2000:])


def test_a_standby_with_the_slot_is_followed(primary: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with postgres.standby_of(primary) as standby, deployed(tmp_path, native(primary)) as made:
        until(made, lambda: is_equal(made, primary))
        postgres.copy_slots(primary, standby)
        insert(primary, 2)
        insert(primary, 3)
        primary.run("UPDATE orders SET note = 'b' WHERE id = 1")
        until(made, lambda: is_equal(made, primary))
        stop_polling(tmp_path)
        insert(primary, 4)  # not read from the primary
        primary.run("DELETE FROM orders WHERE id = 2")
        caught_up(primary, standby)
        take_over(primary, standby)
        insert(standby, 5)
        until(made, lambda: is_equal(made, standby), 60)
        assert [row[0] for row in rows_of(made, "Orders", COLUMNS)] == [1, 3, 4, 5]
        assert letters(made) == []
        assert "on timeline 2, and was on 1" in caplog.text


def test_a_standby_without_the_slot_is_reported(primary: Server, tmp_path: Path) -> None:
    with (
        deployed(tmp_path, native(primary)) as made,
        postgres.standby_of(primary) as standby,
    ):  # before the slot is there
        until(made, lambda: is_equal(made, primary))
        caught_up(primary, standby)
        take_over(primary, standby)
        insert(standby, 2)
        until(made, lambda: letters(made), 60)
        assert "is gone; changes since then are lost; hint: commit the dataset as a new version" in reasons(made)


def reasons(made: Any) -> str:
    return "\n".join(each.reason for each in letters(made))


@pytest.mark.parametrize("is_beyond", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_standby_that_lacks_what_was_read_is_reported(primary: Server, tmp_path: Path, *, is_beyond: bool) -> None:
    """Even if its log has become longer than the one that was read: it has other changes at the same positions."""
    with postgres.standby_of(primary) as standby, deployed(tmp_path, native(primary)) as made:
        until(made, lambda: is_equal(made, primary))
        caught_up(primary, standby)
        postgres.copy_slots(primary, standby)
        disconnect(standby)
        primary.run("SELECT pg_logical_emit_message(false, 'tests', repeat('x', 300000))")
        insert(primary, 2)
        until(made, lambda: is_equal(made, primary))
        stop_polling(tmp_path)
        take_over(primary, standby)
        if is_beyond:
            standby.run("SELECT pg_switch_wal()")
        insert(standby, 3)
        until(made, lambda: letters(made), 60)
        assert "a standby took over that lacked them; hint: commit the dataset as a new version" in reasons(made)
        assert ("left timeline 1 at" in reasons(made)) is is_beyond


def test_a_standby_that_lacks_the_log_of_the_slot_is_reported(primary: Server, tmp_path: Path) -> None:
    with deployed(tmp_path, native(primary)) as made:
        until(made, lambda: is_equal(made, primary))
        stop_polling(tmp_path)  # a slot that goes on while the standby is made may need nothing from before that
        with postgres.standby_of(primary) as standby:
            postgres.copy_slots(primary, standby)
            caught_up(primary, standby)
            take_over(primary, standby)
            until(made, lambda: letters(made), 60)
            assert "lacks WAL of the replication slot" in reasons(made)
            assert "hint: commit the dataset as a new version" in reasons(made)


@pytest.mark.parametrize("by_failover", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_slot_made_again_is_reported(primary: Server, tmp_path: Path, *, by_failover: bool) -> None:
    """It begins where it was made: the changes before that would be missing."""
    with deployed(tmp_path, native(primary)) as made, postgres.standby_of(primary) as standby:
        until(made, lambda: is_equal(made, primary))
        stop_polling(tmp_path)
        slot = primary.run("SELECT slot_name FROM pg_replication_slots WHERE slot_type = 'logical'")[0][0]
        caught_up(primary, standby)
        server = primary
        if by_failover:
            take_over(primary, standby)
            server = standby
        insert(server, 2)
        if not by_failover:
            wait_until(lambda: drop(server, slot), lambda: slot)
        server.run(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        insert(server, 3)
        until(made, lambda: letters(made), 60)
        assert "was made again" in reasons(made)


def drop(server: Server, slot: str) -> bool:
    try:
        server.run(f"SELECT pg_drop_replication_slot('{slot}')")
    except Exception:
        return False  # the server has not noticed yet that the stream has ended
    return True
