"""What may happen to the binary log of a real MariaDB server, and its settings: reported, or without effect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.connectors.mysql_shop import ORDERS, shop, user
from tests.connectors.shop_datasets import PATIENCE, deployed, examine, letters, rows_of, until
from tests.connectors.test_mysql_changes import drained, is_equal, native
from tests.servers import mysql
from tests.servers.mysql import MySQLServer
from umbel.connectors.mysql import replication
from umbel.connectors.polling import stop_polling
from umbel.connectors.staging import Stage
from umbel.errors import InvalidValue

Server = MySQLServer


@pytest.fixture
def own_server(mysql_server: Server) -> Iterator[Server]:
    """Return a server of its own for tests that change more than tables."""
    del mysql_server  # skipped where there can be none
    with mysql.running() as server:
        server.run("CREATE DATABASE shop")
        yield server


def purge(server: Server) -> None:
    """Delete all logs but the current one.

    The server keeps, and does not say so, logs that it still sends to a reader whose end it has not noticed, and those whose
    transactions its engine has not written yet.
    """
    deadline = time.monotonic() + PATIENCE
    last = server.run("SHOW MASTER STATUS")[0][0]
    while [log for log, *_ in server.run(f"PURGE BINARY LOGS TO '{last}'", "SHOW BINARY LOGS")] != [last]:
        assert time.monotonic() < deadline, server.run("SHOW PROCESSLIST")
        time.sleep(0.05)


def test_a_purged_log_is_reported(own_server: Server, tmp_path: Path) -> None:
    run = partial(own_server.run, database="shop")
    run(ORDERS, "INSERT INTO orders VALUES (1, 'a', now(6))")
    with deployed(tmp_path, native(own_server, "shop")) as made:
        until(made, lambda: made.taken().get("Orders") == 1)
        stop_polling(tmp_path)
        run(
            "INSERT INTO orders VALUES (2, 'b', now(6))",
            "FLUSH BINARY LOGS",
            "INSERT INTO orders VALUES (3, 'c', now(6))",
        )
        run("FLUSH BINARY LOGS")
        purge(own_server)
        until(made, lambda: letters(made))
        reason = letters(made)[0].reason
        assert "the server deleted changes that were not read" in reason
        assert "hint: raise binlog_expire_logs_seconds" in reason
        assert "commit the dataset as a new version" in reason


def test_purging_what_was_read_loses_nothing(
    own_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when only other tables have changed since."""
    monkeypatch.setattr(replication, "SAVE", 0.0)
    run = partial(own_server.run, database="shop")
    run(ORDERS, "CREATE TABLE others(n int)", "INSERT INTO orders VALUES (1, 'a', now(6))")
    with deployed(tmp_path, native(own_server, "shop")) as made:
        until(made, lambda: made.taken().get("Orders") == 1)
        for _ in range(3):
            run("INSERT INTO others VALUES (1)", "FLUSH BINARY LOGS")
        now = run("SELECT @@gtid_binlog_pos")[0][0]
        (folder,) = tmp_path.glob("umbel/staged/*")
        until(made, lambda: Stage(folder).state()["gtid"] == now)
        stop_polling(tmp_path)
        purge(own_server)
        run("INSERT INTO orders VALUES (2, 'b', now(6))")
        until(made, lambda: is_equal(made, own_server, "shop"))
        assert letters(made) == []


@pytest.mark.parametrize("way", ["reset", "another server"])
def test_another_history_is_reported(own_server: Server, tmp_path: Path, way: str) -> None:
    run = partial(own_server.run, database="shop")
    run(ORDERS, "INSERT INTO orders VALUES (1, 'a', now(6))", "INSERT INTO orders VALUES (2, 'b', now(6))")
    with deployed(tmp_path, native(own_server, "shop")) as made:
        until(made, lambda: made.taken().get("Orders") == 2)
        run("INSERT INTO orders VALUES (3, 'b', now(6))")
        until(made, lambda: made.taken().get("Orders") == 3)
        stop_polling(tmp_path)
        if way == "reset":
            run("RESET MASTER", "INSERT INTO orders VALUES (4, 'c', now(6))")
        else:  # with more transactions than were read, but not the same
            run("SET GLOBAL server_id = 7", "RESET MASTER")
            run("SET SESSION gtid_seq_no = 1000", "INSERT INTO orders VALUES (4, 'c', now(6))")
        until(made, lambda: letters(made))
        assert "has another history than the rows came from" in letters(made)[0].reason
        assert "commit the dataset as a new version" in letters(made)[0].reason


def test_settings_of_the_server_are_checked(own_server: Server, tmp_path: Path) -> None:
    own_server.run(ORDERS, database="shop")
    for setting, value in {
        "binlog_format": "MIXED",
        "binlog_row_image": "MINIMAL",
        "binlog_row_metadata": "NO_LOG",
    }.items():
        before = own_server.run(f"SELECT @@global.{setting}")[0][0]
        own_server.run(f"SET GLOBAL {setting} = '{value}'")
        match = rf"(?s){setting} of the server is '{value}'.*SET GLOBAL {setting} = '{before}'.*configuration"
        with pytest.raises(InvalidValue, match=match), deployed(tmp_path, native(own_server, "shop")):
            pass
        own_server.run(f"SET GLOBAL {setting} = '{before}'")


def test_a_server_without_a_log_is_refused(mysql_server: Server, tmp_path: Path) -> None:
    del mysql_server
    with mysql.running("skip_log_bin\n") as server:
        server.run("CREATE DATABASE shop")
        server.run(ORDERS, database="shop")
        match = r"(?s)log_bin of the server is 'OFF'.*configuration: log_bin; then restart"
        with pytest.raises(InvalidValue, match=match), deployed(tmp_path, native(server, "shop")):
            pass


@pytest.mark.parametrize("setting", ["binlog_ignore_db = shop", "binlog_do_db = other"])
def test_a_log_without_the_database_is_refused(mysql_server: Server, setting: str) -> None:
    del mysql_server
    with mysql.running(f"{setting}\n") as server:
        server.run("CREATE DATABASE shop", "CREATE DATABASE other")
        for database in ("shop", "other"):
            server.run(ORDERS, database=database)
        name, value = setting.split(" = ")
        match = rf"(?s)leaves the database shop out of its binary log: {name} is '{value}'.*correct {name}"
        with pytest.raises(InvalidValue, match=match):
            examine(shop(server, "shop").table("orders"))
        examine(shop(server, "other").table("orders"))
        replicating = user(server, "u", "SELECT ON other.*", "REPLICATION SLAVE ON *.*")
        examine(shop(server, "other", **replicating).table("orders"))  # may not see the filters


def test_a_compressed_log_is_read(mysql_server: Server, tmp_path: Path) -> None:
    del mysql_server
    with mysql.running("log_bin_compress = ON\nlog_bin_compress_min_len = 10\nbinlog_checksum = NONE\n") as server:
        server.run("CREATE DATABASE shop")
        run = partial(server.run, database="shop")
        run(ORDERS, "ALTER TABLE orders MODIFY note text COMPRESSED")
        with deployed(tmp_path, native(server, "shop")) as made:
            until(made, lambda: drained(made))
            run("INSERT INTO orders SELECT seq, repeat('long', seq * 10), now(6) FROM seq_1_to_300")
            run("UPDATE orders SET note = '' WHERE id <= 200", "DELETE FROM orders WHERE id <= 100")
            until(made, lambda: is_equal(made, server, "shop"))
            run("TRUNCATE orders /* a comment that makes it long enough for compression */")
            until(made, lambda: rows_of(made, "Orders", ["id"]) == [])
            assert letters(made) == []
