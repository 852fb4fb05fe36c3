"""Tables of a real MariaDB server read by a cursor: every row once, by one statement per period."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.mysql_shop import ORDERS, database, shop, user
from tests.connectors.shop_datasets import deployed, first_split, letters, orders, process, rows_of, until
from tests.running_files import files_with
from tests.servers.mysql import PASSWORD, MySQLServer
from umbel.connectors import source
from umbel.connectors.mysql import reading
from umbel.connectors.mysql.server import MySQLServer as SourceServer
from umbel.connectors.polling import stop_polling
from umbel.datasets import dataset
from umbel.definitions.secret import Secret
from umbel.errors import InvalidValue, Transient
from umbel.runtime.batch import drain
from umbel.types.dtypes import Str

__owner__ = "shop@example.com"
Server = MySQLServer


@pytest.fixture
def name(mysql_server: Server) -> Iterator[str]:
    return database(mysql_server)


def inserted(server: Server, name: str, first: int, last: int, at: str = "now(6)") -> None:
    server.run(f"INSERT INTO orders SELECT seq, concat('n', seq), {at} FROM seq_{first}_to_{last}", database=name)


def table(server: Server, name: str, query: str = "SELECT * FROM orders ORDER BY 1") -> list[Any]:
    found = server.run(query, database=name)
    return [tuple(each.replace(tzinfo=UTC) if isinstance(each, datetime) else each for each in row) for row in found]


def test_rows_and_their_updates_arrive(mysql_server: Server, name: str, tmp_path: Path) -> None:
    mysql_server.run(ORDERS, database=name)
    inserted(mysql_server, name, 1, 1000)
    with deployed(tmp_path, orders(shop(mysql_server, name))) as made:
        until(made, lambda: made.taken().get("Orders") == 1000)
        mysql_server.run("UPDATE orders SET note = 'new', updated_at = now(6) WHERE id <= 10", database=name)
        inserted(mysql_server, name, 1001, 1005)
        until(made, lambda: made.taken()["Orders"] == 1015)
        assert rows_of(made, "Orders", ["id", "note", "updated_at"]) == table(mysql_server, name)


@pytest.mark.parametrize(
    "change", ["TRUNCATE orders", "ALTER TABLE orders ADD more int NOT NULL DEFAULT 1, ALGORITHM=COPY"]
)
def test_a_table_that_is_defined_anew_under_a_snapshot_is_read_again(
    mysql_server: Server, name: str, change: str
) -> None:
    """It was reported as if it could not be read at all."""
    mysql_server.run(ORDERS, database=name)
    inserted(mysql_server, name, 1, 10)
    mysql = shop(mysql_server, name)
    login = SourceServer.of("orders", mysql, mysql.port)

    def read() -> None:
        with login.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            mysql_server.run(change, database=name)
            cursor.execute("SELECT * FROM orders")

    with pytest.raises(Transient, match="definition has changed"):
        read()


def keyless(mysql: Any, cursor: str, every: str = "1s", disorder: str = "1h", table: str = "events") -> Any:
    @source(mysql.table(table, cursor), disorder=disorder, every=every, cdc="append")
    @dataset
    class Events:
        n: int
        at: datetime

    return Events


@pytest.mark.parametrize(
    ("column", "keys"),
    [(each, "n int") for each in ("word", "stamp", "exact")]
    + [("n", "id bigint AUTO_INCREMENT PRIMARY KEY, n int")]
    + [pytest.param(each, "n int", marks=pytest.mark.nightly) for each in ("n", "day", "inexact")]
    + [pytest.param("c", "id bigint AUTO_INCREMENT PRIMARY KEY, n int", marks=pytest.mark.nightly)],
)
def test_equal_cursors_are_neither_lost_nor_doubled(
    mysql_server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, keys: str
) -> None:
    monkeypatch.setattr(reading, "PART_BYTES", 2000)  # parts end among equal values
    monkeypatch.setattr(reading, "AT_ONCE", 7)
    mysql_server.run(
        f"""CREATE TABLE events({keys}, at datetime(6) DEFAULT now(6), c datetime(3), day date,
            word varchar(20) COLLATE utf8mb4_bin,
            stamp timestamp NULL, exact decimal(30, 10), inexact double)""",
        database=name,
    )

    def more(first: int, last: int) -> None:
        mysql_server.run(
            f"""INSERT INTO events(n, c, word, day, stamp, exact, inexact)
                SELECT seq DIV 100, t, concat('w', lpad(seq DIV 100, 5, '0'), if(seq % 2, ' ', '')),
                date('2024-01-01') + INTERVAL seq DIV 300 DAY,
                t, 12345678901234567890.0000000001 + seq DIV 100 * 0.0000000001, 0.1 * (seq DIV 100)
                FROM (SELECT seq, timestamp('2024-01-01') + INTERVAL seq DIV 100 SECOND t FROM seq_{first}_to_{last}) _""",
            database=name,
        )

    with deployed(tmp_path, keyless(shop(mysql_server, name), column)) as made:
        more(1, 450)
        until(made, lambda: made.taken().get("Events") == 450)
        more(451, 600)  # the first 49 have the highest cursor read so far
        until(made, lambda: made.taken()["Events"] >= 600)
        process(made, 1.5)
        found = made.changes("Events").group_by("n").len().sort("n").rows()
    assert found == table(mysql_server, name, "SELECT n, count(*) FROM events GROUP BY n ORDER BY n")


def test_a_row_that_commits_late_is_found(mysql_server: Server, name: str, tmp_path: Path) -> None:
    """By `disorder` for times; for numbers as long as its transaction is open."""
    mysql_server.run(
        "CREATE TABLE events(n bigint AUTO_INCREMENT PRIMARY KEY, at datetime(6) DEFAULT now(6))", database=name
    )
    by_time, by_number = (keyless(shop(mysql_server, name), each) for each in ("at", "n"))
    with (
        deployed(tmp_path / "a", by_time) as a,
        deployed(tmp_path / "b", by_number) as b,
        mysql_server.connect(name, autocommit=False) as late,
    ):
        late.query("INSERT INTO events() VALUES ()")
        for _ in range(3):
            mysql_server.run("INSERT INTO events() VALUES ()", database=name)
        for made in (a, b):
            until(made, lambda made=made: made.taken().get("Events") == 3)
        late.commit()
        mysql_server.run("INSERT INTO events() VALUES ()", database=name)
        for made in (a, b):
            until(made, lambda made=made: made.taken()["Events"] >= 5)
            assert sorted(made.changes("Events")["n"]) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("cursor", ["updated_at", "id"])
def test_one_statement_per_period(mysql_server: Server, name: str, tmp_path: Path, cursor: str) -> None:
    """As the server's general log has it."""
    mysql_server.run(ORDERS, "ALTER TABLE orders ADD KEY (updated_at)", database=name)
    login = user(mysql_server, f"watched_{name}", f"SELECT ON {name}.*", "PROCESS ON *.*")
    inserted(mysql_server, name, 1, 5000)

    @source(shop(mysql_server, name, **login).table("orders", cursor), disorder="1h", every="2s", cdc="append")
    @dataset
    class Orders:
        id: int
        updated_at: datetime

    start = time.monotonic()
    with deployed(tmp_path, Orders) as made:
        while time.monotonic() - start < 7:
            process(made, 0.7)
            stop_polling(tmp_path)  # as restarts would do
        assert made.taken() == {"Orders": 5000}
    log = mysql_server.general_log.read_text()
    read = [line for line in log.splitlines() if f"`{name}`.`orders`" in line and "Query\tSELECT" in line]
    assert len([line for line in read if "DESC LIMIT 1" in line]) == (cursor == "id"), "the highest cursor at first"
    found = [line for line in read if "LIMIT 0" not in line and "DESC LIMIT 1" not in line]
    assert 3 <= len(found) <= (time.monotonic() - start) / 2 + 2
    assert all(f"ORDER BY `{cursor}`" in line for line in found)


@pytest.mark.parametrize(("column", "kind"), [("id", "bigint"), ("word", "varchar(20) COLLATE utf8mb4_bin")])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_table_is_read_whole_only_once(
    mysql_server: Server, name: str, tmp_path: Path, column: str, kind: str, is_open: bool
) -> None:
    """By a cursor that is no time; it was read twice, as the rows examined show. Unless a transaction stays open at first."""
    mysql_server.run(f"CREATE TABLE events({column} {kind} PRIMARY KEY, n int, at datetime(6))", database=name)
    value = "seq" if column == "id" else "lpad(seq, 8, '0')"

    def more(first: int, last: int) -> None:
        mysql_server.run(f"INSERT INTO events SELECT {value}, seq, now(6) FROM seq_{first}_to_{last}", database=name)

    more(1, 2000)
    more(2002, 2010)
    with (
        deployed(tmp_path, keyless(shop(mysql_server, name), column)) as made,
        mysql_server.connect(name, autocommit=False) as late,
    ):
        if is_open:
            late.query(f"INSERT INTO events SELECT {value}, seq, now(6) FROM seq_2001_to_2001")
        until(made, lambda: made.taken().get("Events") == 2009)
        late.commit()
        process(made, 2.5)
        more(2011, 2020)
        until(made, lambda: made.taken()["Events"] == 2019 + is_open)
        process(made, 1.5)
        stop_polling(tmp_path)
        assert sorted(made.changes("Events")["n"]) == [
            *range(1, 2001),
            *([2001] if is_open else []),
            *range(2002, 2021),
        ]
    log = mysql_server.general_log.read_text()
    read = [
        line for line in log.splitlines() if f"`{name}`.`events`" in line and "LIMIT" not in line and "ORDER BY" in line
    ]
    whole = [line for line in read if ">=" not in line]
    assert len(whole) == 1 if not is_open else len(whole) >= 2


def test_rows_without_a_real_cursor_are_not_read(mysql_server: Server, name: str, tmp_path: Path) -> None:
    mysql_server.run("CREATE TABLE events(n int, at datetime)", database=name)
    with deployed(tmp_path, keyless(shop(mysql_server, name), "at", disorder="2d")) as made:
        for first in (0, 10):
            values = ", ".join(
                f"({first + n}, {at})"
                for n, at in enumerate(("'0000-00-00'", "NULL", "'2024-00-01'", "'2024-01-01'", "'2024-01-02'"))
            )
            mysql_server.run("SET sql_mode = ''", f"INSERT INTO events VALUES {values}", database=name)
            until(made, lambda first=first: made.taken().get("Events", 0) >= 2 + first // 5)
        assert sorted(made.changes("Events")["n"]) == [3, 4, 13, 14]
        assert letters(made) == []


def test_errors_at_commit_say_what_to_do(mysql_server: Server, name: str, tmp_path: Path) -> None:
    mysql_server.run(ORDERS, "CREATE TABLE singles(n int, at float)", database=name)
    poor = user(mysql_server, f"poor_{name}", f"SELECT ON {name}.singles")
    reading = user(mysql_server, f"reading_{name}", f"SELECT ON {name}.*")
    by_id = {"cursor": "id"}
    cases: list[tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = [
        ({}, {"table": "order"}, InvalidValue, "no table `.*`.`order`; did you mean 'orders'"),
        ({"password": "wr0ng"}, {}, InvalidValue, "Access denied .*\n.*correct username= and password="),
        ({"name": "nowhere"}, {}, InvalidValue, "Unknown database 'nowhere'"),
        (poor, {}, InvalidValue, f"SELECT command denied.*orders.*\n.*GRANT SELECT on the table to poor_{name}"),
        (reading, by_id, InvalidValue, f"(?s)the cursor 'id'.*GRANT PROCESS ON .* TO reading_{name}"),
        ({"port": 1}, {}, Transient, "refused.*\n.*see that the server runs"),
    ]
    for login, options, kind, message in cases:
        options = {"every": "1s", **options}
        read = orders(shop(mysql_server, **{"name": name, **login}), **options)
        with pytest.raises(kind) as caught, deployed(tmp_path / "x", read):
            pass
        assert re.search(message, str(caught.value)), str(caught.value)
        assert PASSWORD not in str(caught.value)
        assert "wr0ng" not in str(caught.value)
    with (
        pytest.raises(InvalidValue, match="column 'at' of type float cannot be a cursor"),
        deployed(tmp_path / "x", keyless(shop(mysql_server, name), "at", table="singles")),
    ):
        pass


def test_a_missing_column_is_named_at_commit(mysql_server: Server, name: str, tmp_path: Path) -> None:
    mysql_server.run("CREATE TABLE orders(id bigint, notes text, updated_at datetime)", database=name)
    with (
        pytest.raises(InvalidValue, match="has no column 'note'; did you mean 'notes'"),
        deployed(tmp_path, orders(shop(mysql_server, name))),
    ):
        pass


def test_a_dropped_column_stops_reading_until_it_is_back(mysql_server: Server, name: str, tmp_path: Path) -> None:
    mysql_server.run(ORDERS, database=name)
    inserted(mysql_server, name, 1, 3)
    with deployed(tmp_path, orders(shop(mysql_server, name))) as made:
        until(made, lambda: made.taken().get("Orders") == 3)
        mysql_server.run("ALTER TABLE orders RENAME COLUMN note TO remark", database=name)
        inserted(mysql_server, name, 4, 5)
        until(made, lambda: letters(made))
        assert "no column 'note'" in letters(made)[0].reason
        mysql_server.run("ALTER TABLE orders RENAME COLUMN remark TO note", database=name)
        until(made, lambda: len(rows_of(made, "Orders", ["id"])) == 5)


@pytest.mark.parametrize(
    ("columns", "cursor", "change"),
    [
        ("n int, at datetime, PRIMARY KEY(n)", "at", "MODIFY at datetime(6)"),
        ("n int, at datetime(6)", "at", "MODIFY n decimal(10, 2)"),
        ("n int, at datetime(6)", "at", "ADD id bigint AUTO_INCREMENT PRIMARY KEY, AUTO_INCREMENT = 1000"),
        ("n decimal(10, 2), at datetime(6), PRIMARY KEY(n)", "n", "MODIFY n int"),
    ],
)
def test_rows_are_recognised_in_an_altered_table(
    mysql_server: Server, name: str, tmp_path: Path, columns: str, cursor: str, change: str
) -> None:
    """The digests of a keyless dataset's rows are of texts and columns of before: each row counted twice."""
    mysql_server.run(f"CREATE TABLE events({columns})", database=name)

    def more(first: int, last: int) -> None:
        mysql_server.run(f"INSERT INTO events(n, at) SELECT seq, now(6) FROM seq_{first}_to_{last}", database=name)

    more(1, 20)
    with deployed(tmp_path, keyless(shop(mysql_server, name), cursor)) as made:
        until(made, lambda: made.taken().get("Events") == 20)
        mysql_server.run(f"ALTER TABLE events {change}", database=name)
        more(21, 25)
        until(made, lambda: made.taken()["Events"] >= 25)
        process(made, 1.5)
        assert sorted(made.changes("Events")["n"]) == list(range(1, 26))
        assert letters(made) == []


def test_a_cursor_of_another_order_stops_reading(mysql_server: Server, name: str, tmp_path: Path) -> None:
    """Rows behind '9' were hidden: '10' is before it."""
    mysql_server.run("CREATE TABLE events(n int PRIMARY KEY, at datetime(6) DEFAULT now(6))", database=name)
    mysql_server.run("INSERT INTO events(n) VALUES (8), (9)", database=name)
    with deployed(tmp_path, keyless(shop(mysql_server, name), "n")) as made:
        until(made, lambda: made.taken().get("Events") == 2)
        mysql_server.run("ALTER TABLE events MODIFY n varchar(9) COLLATE utf8mb4_bin", database=name)
        mysql_server.run("INSERT INTO events(n) VALUES ('10')", database=name)
        until(made, lambda: letters(made), 30)
        assert re.search(r"'n' was of type int.*is of varchar\(9\).*new version", letters(made)[0].reason)


def test_a_restarted_server_loses_nothing(mysql_server: Server, name: str, tmp_path: Path) -> None:
    mysql_server.run(ORDERS, database=name)
    inserted(mysql_server, name, 1, 10)
    with deployed(tmp_path, orders(shop(mysql_server, name))) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        mysql_server.kill()
        process(made, 1.5)
        mysql_server.start()
        inserted(mysql_server, name, 11, 20)
        until(made, lambda: made.taken()["Orders"] == 20)
        assert letters(made) == []


def test_a_split_gives_the_same_rows_again(mysql_server: Server, name: str, tmp_path: Path) -> None:
    mysql_server.run(ORDERS, database=name)
    inserted(mysql_server, name, 1, 100)
    with deployed(tmp_path, orders(shop(mysql_server, name))) as made:
        until(made, lambda: made.taken().get("Orders") == 100)
        mysql_server.run("UPDATE orders SET note = 'other'", "DELETE FROM orders WHERE id > 50", database=name)
        split = first_split(made)
        opened = next(each for each in made.deployment._sources()[1])
        for _ in range(2):
            (batch,) = opened.open_all([split.split], {"note": Str()})
            assert batch.raw.frame["note"].to_list() == [f"n{i}" for i in range(1, 101)]
            assert batch.first == 0


def test_a_long_read_can_be_interrupted(
    mysql_server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on from where it was, and the rest is not read for nothing."""
    monkeypatch.setattr(reading, "PART_BYTES", 20_000)
    mysql_server.run(ORDERS, database=name)
    inserted(mysql_server, name, 1, 30_000, "now(6) + INTERVAL seq MICROSECOND")
    with deployed(tmp_path, orders(shop(mysql_server, name))) as made:
        for _ in range(4):
            drain(made.deployment)
            stop_polling(tmp_path)
        until(made, lambda: made.taken().get("Orders") == 30_000)
        assert rows_of(made, "Orders", ["id", "note", "updated_at"]) == table(mysql_server, name)


def test_the_password_is_in_no_file(mysql_server: Server, name: str, tmp_path: Path) -> None:
    """Neither a secret of the deployment, nor a plain one in other files than the catalog."""
    mysql_server.run(ORDERS, database=name)
    inserted(mysql_server, name, 1, 10)
    secret = shop(mysql_server, name, password=Secret(arn="shop"))
    with pytest.raises(Transient, match=r"(?s)no secret 'shop'.*add_secret"), deployed(tmp_path / "a", orders(secret)):
        pass
    with deployed(tmp_path / "a") as made:
        made.deployment.vault.add("shop", PASSWORD)
        made.commit([orders(secret)])
        until(made, lambda: made.taken().get("Orders") == 10)
        assert files_with(PASSWORD, tmp_path / "a", more_than=5) == []
    read = shop(mysql_server, name)
    assert PASSWORD not in f"{read!r} {read.table('orders', 'updated_at')!r}"
    with deployed(tmp_path / "b", orders(read)) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        assert files_with(PASSWORD, tmp_path / "b", besides="catalog.db", more_than=5) == []
