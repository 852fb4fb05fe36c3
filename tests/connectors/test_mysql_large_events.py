"""First copies of tables of a MariaDB server whose log has events that it cannot read itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.connectors.mysql_shop import ORDERS, database, shop
from tests.connectors.shop_datasets import deployed, letters, orders, rows_of, until
from tests.servers.mysql import MySQLServer
from umbel.connectors.mysql.stream import StreamError, transactions_before

__owner__ = "shop@example.com"


@pytest.fixture
def name(mysql_server: MySQLServer) -> str:
    return database(mysql_server)


def test_an_event_that_the_server_cannot_read_holds_up_no_first_copy(
    mysql_server: MySQLServer, name: str, tmp_path: Path
) -> None:
    """MariaDB finds no position behind an event above its max_allowed_packet; the log is read for it."""
    run = partial(mysql_server.run, database=name)
    run(ORDERS, "CREATE TABLE large(note longtext)", "INSERT INTO orders VALUES (1, 'a', now(6))", "FLUSH BINARY LOGS")
    limit = run("SELECT @@global.max_allowed_packet")[0][0]
    run("SET GLOBAL max_allowed_packet = 1 << 27")
    run("INSERT INTO large VALUES (repeat('x', 17 << 20))", f"SET GLOBAL max_allowed_packet = {limit}")
    run("SET gtid_domain_id = 7", "INSERT INTO orders VALUES (2, 'b', now(6))")
    try:
        (file, offset, *_), *_ = run("SHOW MASTER STATUS")
        assert run(f"SELECT BINLOG_GTID_POS('{file}', {offset})") == [(None,)]
        with deployed(tmp_path, orders(shop(mysql_server, name), cdc="native")) as made:
            until(made, lambda: made.taken().get("Orders") == 2)
            run("UPDATE orders SET note = 'c' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
            until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(1, "c")])
            assert letters(made) == []
    finally:
        run("FLUSH BINARY LOGS")  # other tests read a short log


def test_positions_read_from_the_log_are_those_of_the_server(mysql_server: MySQLServer, name: str) -> None:
    run = partial(mysql_server.run, database=name)
    run(ORDERS, "SET server_id = 99", "INSERT INTO orders VALUES (1, 'a', now(6))")
    run("SET gtid_domain_id = 3", "INSERT INTO orders VALUES (2, 'b', now(6))", "FLUSH BINARY LOGS")
    run(
        "DELETE FROM orders WHERE id = 1",
        "SET gtid_domain_id = 4",
        "TRUNCATE orders",
        "INSERT INTO orders VALUES (4, '', now(6))",
    )
    file = run("SHOW MASTER STATUS")[0][0]
    ends = {row[4] for row in run(f"SHOW BINLOG EVENTS IN '{file}'") if row[2] in {"Xid", "Query", "Gtid_list"}}
    compared = 0
    for end in sorted(ends):
        (expected,) = run(f"SELECT BINLOG_GTID_POS('{file}', {end})")[0]
        with mysql_server.connect() as connection:
            found = transactions_before(connection, file, end)
        assert sorted(found.split(",")) == sorted(expected.split(",")), end
        compared += 1
    assert compared >= 4
    with mysql_server.connect() as connection, pytest.raises(StreamError):
        transactions_before(connection, file, max(ends) + 1000)
    with mysql_server.connect() as connection, pytest.raises(StreamError, match="not find"):
        transactions_before(connection, "binlog.999999", 4000)
