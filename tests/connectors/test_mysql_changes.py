"""Changes of tables of a real MariaDB server, from its binary log: the dataset is what the table is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.connectors.mysql_shop import ORDERS, database, shop, user
from tests.connectors.shop_datasets import deployed, letters, orders, process, rows_of, until
from tests.servers.mysql import MySQLServer
from umbel.connectors import ref, source
from umbel.connectors.mysql import replication
from umbel.connectors.polling import stop_polling
from umbel.connectors.staging import Stage
from umbel.datasets import dataset, field
from umbel.errors import InvalidValue, NotSupported

__owner__ = "shop@example.com"
Server = MySQLServer
COLUMNS = ["id", "note", "updated_at"]
SQL = "SELECT id, note, updated_at FROM orders ORDER BY 1"


@pytest.fixture
def name(mysql_server: Server) -> Iterator[str]:
    return database(mysql_server)


def table(server: Server, name: str) -> list[Any]:
    return [(key, note, at.replace(tzinfo=UTC)) for key, note, at in server.run(SQL, database=name)]


def native(server: Server, name: str, **options: Any) -> Any:
    return orders(shop(server, name), cdc="native", **options)


def is_equal(made: Any, server: Server, name: str) -> bool:
    return rows_of(made, "Orders", COLUMNS) == table(server, name)


def drained(made: Any) -> bool:
    """Return whether the first copy is complete."""
    return not any(each.is_loading for each in made.deployment._sources()[1])


def test_inserts_updates_and_deletions_follow_the_first_copy(mysql_server: Server, name: str, tmp_path: Path) -> None:
    run = partial(mysql_server.run, database=name)
    run(ORDERS, "INSERT INTO orders SELECT seq, concat('n', seq), now(6) FROM seq_1_to_1000")
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: made.taken().get("Orders") == 1000)
        run(
            "INSERT INTO orders SELECT seq, 'later', now(6) FROM seq_1001_to_1010",
            "UPDATE orders SET note = 'changed' WHERE id <= 5",
            "DELETE FROM orders WHERE id BETWEEN 6 AND 10",
            "UPDATE orders SET id = id + 5000 WHERE id BETWEEN 11 AND 15",  # the old keys end
            "REPLACE INTO orders VALUES (16, 'replaced', now(6))",
            "INSERT INTO orders VALUES (17, 'x', now(6)) ON DUPLICATE KEY UPDATE note = 'again'",
            "INSERT INTO orders VALUES (20000, 'one', now(6))",
            "DELETE FROM orders WHERE id = 20000",
        )
        until(made, lambda: is_equal(made, mysql_server, name))
        assert letters(made) == []


def test_many_changes_of_a_row_within_a_second(mysql_server: Server, name: str, tmp_path: Path) -> None:
    """MariaDB tells the second of a commit only, but the last change counts."""
    run = partial(mysql_server.run, database=name)
    run(ORDERS)
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        for wave in range(30):
            run(
                f"INSERT INTO orders VALUES (1, 'a{wave}', now(6)), (2, 'b', now(6))",
                f"UPDATE orders SET note = 'c{wave}', updated_at = now(6) WHERE id = 1",
                "DELETE FROM orders WHERE id = 2",
                *(["DELETE FROM orders WHERE id = 1"] if wave < 29 else []),
            )
        until(made, lambda: is_equal(made, mysql_server, name))
        assert letters(made) == []


def test_a_row_that_comes_back_with_an_older_timestamp_is_there(
    mysql_server: Server, name: str, tmp_path: Path
) -> None:
    """Deleted and inserted again, in one transaction and in two, as by tools that write a table anew."""
    run = partial(mysql_server.run, database=name)
    run(ORDERS, "INSERT INTO orders SELECT seq, concat('n', seq), '2024-01-01' FROM seq_1_to_20")
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: made.taken().get("Orders") == 20)
        run("CREATE TABLE copy AS SELECT * FROM orders", "DELETE FROM orders")
        until(made, lambda: rows_of(made, "Orders", COLUMNS) == [])
        stop_polling(tmp_path)
        run("INSERT INTO orders SELECT * FROM copy WHERE id <= 10")
        until(made, lambda: is_equal(made, mysql_server, name))
        run("BEGIN", "DELETE FROM orders", "INSERT INTO orders SELECT id, 'again', updated_at FROM copy", "COMMIT")
        until(made, lambda: is_equal(made, mysql_server, name))
        run("UPDATE orders SET note = 'back', updated_at = '2023-01-15' WHERE id = 1")
        until(made, lambda: is_equal(made, mysql_server, name))


def test_a_keyless_dataset_takes_inserts_and_reports_the_rest(mysql_server: Server, name: str, tmp_path: Path) -> None:
    run = partial(mysql_server.run, database=name)
    run(ORDERS)

    @source(shop(mysql_server, name).table("orders"), disorder="1d", cdc="native", preproc={"n": ref("id")})
    @dataset
    class Events:
        n: int
        updated_at: datetime

    with deployed(tmp_path, Events) as made:
        until(made, lambda: drained(made))
        run("INSERT INTO orders SELECT seq, 'x', now(6) FROM seq_1_to_10")
        run("UPDATE orders SET note = 'y' WHERE id = 1", "DELETE FROM orders WHERE id = 2", "TRUNCATE orders")
        until(made, lambda: made.taken().get("Events") == 13)
        assert sorted(made.changes("Events")["n"]) == list(range(1, 11))
        reasons = [each.reason for each in reversed(letters(made))]
        assert [each.split(" of ")[0] for each in reasons[:2]] == ["an update", "a deletion"]
        assert "truncated" in reasons[2]


def test_transactions_are_whole(mysql_server: Server, name: str, tmp_path: Path) -> None:
    """What is rolled back is not there, and of a transaction all or nothing."""
    run = partial(mysql_server.run, database=name)
    run(ORDERS, "CREATE TABLE log(n int) ENGINE = MyISAM")
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        with mysql_server.connect(name, autocommit=False) as connection:
            connection.query("INSERT INTO orders SELECT seq, 'never', now(6) FROM seq_1_to_100")
            connection.rollback()
            for first in range(1, 5000, 1000):
                connection.query(f"INSERT INTO orders SELECT seq, 'x', now(6) FROM seq_{first}_to_{first + 999}")
                process(made, 0.2)
                assert made.taken().get("Orders", 0) == 0
            # with a table without transactions the server logs what was undone, and that it was
            for each in (
                "SAVEPOINT a",
                "INSERT INTO orders VALUES (9000, 'undone', now(6))",
                "INSERT INTO log VALUES (1)",
                "ROLLBACK TO SAVEPOINT a",
            ):
                connection.query(each)
            connection.commit()
        seen = set[int]()
        until(made, lambda: seen.add(made.taken().get("Orders", 0)) or 5000 in seen)
        assert seen <= {0, 5000}
        until(made, lambda: is_equal(made, mysql_server, name))


def test_a_transaction_in_two_phases_is_reported(mysql_server: Server, name: str, tmp_path: Path) -> None:
    run = partial(mysql_server.run, database=name)
    run(ORDERS)
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        run(
            "XA START 'x'",
            "INSERT INTO orders VALUES (1, 'a', now(6))",
            "XA END 'x'",
            "XA PREPARE 'x'",
            "XA COMMIT 'x'",
        )
        until(made, lambda: letters(made))
        assert "XA transaction" in letters(made)[0].reason
        run("INSERT INTO orders VALUES (2, 'b', now(6))")
        until(made, lambda: [row[0] for row in rows_of(made, "Orders", COLUMNS)] == [2])


def test_changes_of_the_table_itself(mysql_server: Server, name: str, tmp_path: Path) -> None:
    """An added column is ignored, a retyped one is read as long as it fits, rows without a dropped one are rejected."""
    run = partial(mysql_server.run, database=name)
    run(ORDERS)
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        run("INSERT INTO orders VALUES (0, 'a', now(6))", "ALTER TABLE orders ADD more int FIRST")
        run("INSERT INTO orders VALUES (5, 1, 'a', now(6))")
        until(made, lambda: made.taken().get("Orders") == 2)
        assert [row[0] for row in rows_of(made, "Orders", COLUMNS)] == [0, 1]
        run("ALTER TABLE orders MODIFY id varchar(20)", "INSERT INTO orders VALUES (5, 'x', 'c', now(6))")
        until(made, lambda: made.taken().get("Orders") == 3)
        assert [each.field for each in letters(made)] == ["id"]
        run("DELETE FROM orders WHERE id = 'x'", "ALTER TABLE orders MODIFY id int", "ALTER TABLE orders DROP note")
        run("INSERT INTO orders VALUES (5, 4, now(6))")
        until(
            made, lambda: any("note" in (each.field, each.reason) or "'note'" in each.reason for each in letters(made))
        )


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["ALTER TABLE orders PARTITION BY HASH (id) PARTITIONS 2", "ALTER TABLE orders TRUNCATE PARTITION p0"], "a part"),
        (["DROP TABLE orders", ORDERS], "was dropped, renamed or replaced"),
        (["RENAME TABLE orders TO former", ORDERS], "was dropped, renamed or replaced"),
        (["SET binlog_format = 'STATEMENT'", "DELETE FROM orders"], "logged without them.*SET GLOBAL binlog_format = 'ROW'"),
        (["SET binlog_row_image = 'MINIMAL'", "UPDATE orders SET updated_at = now(6) WHERE id = 1"], "lacks values"),
        (["SET binlog_row_image = 'MINIMAL'", "INSERT INTO orders(id, updated_at) VALUES (5, now(6))"], "lacks values"),
    ],
)  # fmt: skip
def test_what_cannot_be_applied_is_reported(
    mysql_server: Server, name: str, tmp_path: Path, statements: list[str], reason: str
) -> None:
    run = partial(mysql_server.run, database=name)
    run(ORDERS, "INSERT INTO orders VALUES (1, 'a', now(6)), (2, 'b', now(6))", "CREATE TABLE others LIKE orders")
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: made.taken().get("Orders") == 2)
        run("TRUNCATE others", "DROP TABLE others")
        run("SET sql_mode = ''", *statements)
        run("INSERT INTO orders VALUES (9, 'later', now(6))")
        until(made, lambda: 9 in [row[0] for row in rows_of(made, "Orders", COLUMNS)])
        assert [bool(re.search(reason, each.reason)) for each in letters(made)] == [True]


def test_changes_that_are_not_on_disk_are_read_again(
    mysql_server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = partial(mysql_server.run, database=name)
    run(ORDERS)
    monkeypatch.setattr(replication, "SAVE", 0.0)
    append, failures, early = Stage.append, [0], list[str]()

    def appended(stage: Stage, frame: pl.DataFrame, facts: Any) -> Any:
        if stage.state()["gtid"] == facts["gtid"]:
            early.append(facts["gtid"])
        if failures[0]:
            failures[0] -= 1
            raise OSError("the disk is full")
        return append(stage, frame, facts)

    def is_staged() -> bool:
        assert early == [], "a position was saved before the changes up to it"
        return is_equal(made, mysql_server, name) and not failures[0]

    monkeypatch.setattr(Stage, "append", appended)
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        for wave in range(3):
            failures[0] = 1
            run(f"INSERT INTO orders VALUES ({wave}, 'a', now(6))", f"DELETE FROM orders WHERE id = {wave - 1}")
            until(made, is_staged)
            assert early == []


def test_a_killed_server_loses_nothing(mysql_server: Server, name: str, tmp_path: Path) -> None:
    run = partial(mysql_server.run, database=name)
    run(ORDERS)
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        for wave in range(3):
            run(f"INSERT INTO orders SELECT seq, 'n', now(6) FROM seq_{wave * 100}_to_{wave * 100 + 99}")
            mysql_server.kill()
            mysql_server.start()
            run(f"DELETE FROM orders WHERE id = {wave * 100}")
        until(made, lambda: is_equal(made, mysql_server, name))
        assert letters(made) == []


def test_the_first_copy_belongs_to_the_position(
    mysql_server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keyless dataset has each row once, whatever is inserted while the copy begins; with and without MariaDB's help."""
    run = partial(mysql_server.run, database=name)
    run("CREATE TABLE orders(id bigint AUTO_INCREMENT PRIMARY KEY, updated_at datetime(6) DEFAULT now(6))")

    @source(shop(mysql_server, name).table("orders"), disorder="1d", cdc="native")
    @dataset
    class Events:
        id: int
        updated_at: datetime

    with deployed(tmp_path, Events) as made, mysql_server.connect(name) as connection:

        def drained_while_rows_come() -> bool:
            for _ in range(20):
                connection.query("INSERT INTO orders() VALUES ()")
            return drained(made)

        until(made, drained_while_rows_come)
        drained_while_rows_come()
        expected = run("SELECT count(*) FROM orders")[0][0]
        until(made, lambda: made.taken().get("Events", 0) >= expected)
        assert sorted(made.changes("Events")["id"]) == list(range(1, expected + 1))


def test_what_the_source_lacks_is_said_at_commit(mysql_server: Server, name: str, tmp_path: Path) -> None:
    run = partial(mysql_server.run, database=name)
    run(
        "CREATE TABLE old(id bigint PRIMARY KEY, note text, updated_at datetime(6)) ENGINE = MyISAM",
        "CREATE TABLE parents(id bigint PRIMARY KEY)",
        """CREATE TABLE orders(id bigint PRIMARY KEY, note text, updated_at datetime(6), parent bigint,
           CONSTRAINT family FOREIGN KEY (parent) REFERENCES parents(id) ON DELETE CASCADE)""",
        "CREATE VIEW shown AS SELECT * FROM orders",
    )
    login = user(mysql_server, f"cdc_{name}", f"SELECT ON {name}.*")

    def refused(message: str, table: str = "orders", **login: Any) -> None:
        read = orders(shop(mysql_server, name, **login), cdc="native", table=table)
        with pytest.raises(InvalidValue, match=message), deployed(tmp_path / "x", read):
            pass

    refused("(?s)engine MyISAM.*ENGINE = InnoDB", "old")
    refused("(?s)is a view.*by a cursor", "shown")
    refused("(?s)foreign keys make are not in the binary log.*`family`.*ON DELETE CASCADE")
    run("ALTER TABLE orders DROP CONSTRAINT family")
    refused(f"(?s)may not replicate.*GRANT REPLICATION SLAVE ON .* TO cdc_{name}", **login)
    run(f"GRANT REPLICATION SLAVE ON *.* TO cdc_{name}")
    with deployed(tmp_path / "y", orders(shop(mysql_server, name, **login), cdc="native")) as made:
        until(made, lambda: drained(made))
        run("INSERT INTO orders(id, note, updated_at) VALUES (1, 'a', now(6))")
        until(made, lambda: is_equal(made, mysql_server, name))


def test_a_large_row_is_read(mysql_server: Server, name: str, tmp_path: Path) -> None:
    """It comes in several packets."""
    run = partial(mysql_server.run, database=name)
    run(ORDERS, "ALTER TABLE orders MODIFY note longtext")
    with deployed(tmp_path, native(mysql_server, name)) as made:
        until(made, lambda: drained(made))
        limit = run("SELECT @@global.max_allowed_packet")[0][0]
        run("SET GLOBAL max_allowed_packet = 1 << 27")
        run("INSERT INTO orders VALUES (1, repeat('0123456789abcdef', 2500000), now(6))")
        until(made, lambda: made.taken().get("Orders") == 1)
        assert rows_of(made, "Orders", ["note"])[0][0] == "0123456789abcdef" * 2500000
        run(f"SET GLOBAL max_allowed_packet = {limit}", "FLUSH BINARY LOGS")


def test_keys_are_distinguished_as_the_table_does(mysql_server: Server, name: str, tmp_path: Path) -> None:
    """Keys of several columns, whose former values are in the log."""
    run = partial(mysql_server.run, database=name)
    run("CREATE TABLE pairs(a int, b varchar(20), at datetime(6), PRIMARY KEY (a, b))")

    @source(shop(mysql_server, name).table("pairs"), disorder="1d", cdc="native", preproc={"id": ref("a")})
    @dataset(index=True)
    class Pairs:
        id: int = field(key=True)
        b: str = field(key=True)
        at: datetime

    with deployed(tmp_path, Pairs) as made:
        until(made, lambda: drained(made))
        run(
            "INSERT INTO pairs SELECT seq DIV 3, concat('b', seq % 3), now(6) FROM seq_0_to_11",
            "DELETE FROM pairs WHERE a = 1 AND b = 'b2'",
            "UPDATE pairs SET a = a + 10 WHERE a = 2",
            "UPDATE pairs SET b = concat(b, '1') WHERE a = 3",
        )
        expected = run("SELECT a, b FROM pairs ORDER BY 1, 2")

        def found() -> list[Any]:
            net = (
                made.changes("Pairs")
                .group_by("id", "b", "at")
                .agg(pl.col("_weight").sum())
                .filter(pl.col("_weight") > 0)
            )
            return sorted(net.select("id", "b").rows())

        until(made, lambda: found() == list(expected))


def test_a_cursor_and_all_changes_exclude_each_other(mysql_server: Server, name: str, tmp_path: Path) -> None:
    @source(shop(mysql_server, name).table("orders", "updated_at"), disorder="1d", cdc="native")
    @dataset
    class Events:
        updated_at: datetime

    with (
        pytest.raises(NotSupported, match="'native' reads all changes of a table, and it has a cursor"),
        deployed(tmp_path, Events),
    ):
        pass
