"""Tables of MySQL that are unusual: their names, their columns, the zones of sessions, and a change of the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.connectors.mysql_shop import database, shop
from tests.connectors.shop_datasets import current, deployed, examine, letters, orders, rows_of, until
from tests.servers.mysql import MySQLServer as Server
from umbel.connectors import ref, source
from umbel.connectors.polling import stop_polling
from umbel.datasets import dataset, field
from umbel.errors import InvalidValue

__owner__ = "shop@example.com"
LATER = datetime(9000, 1, 1, tzinfo=UTC)


@pytest.fixture
def name(mysql_server: Server) -> str:
    return database(mysql_server)


WAYS = pytest.mark.parametrize("cdc", ["upsert", "native"])


@WAYS
def test_names_and_order_and_number_of_columns(mysql_server: Server, name: str, tmp_path: Path, cdc: str) -> None:
    more = ", ".join(f"c{number} int DEFAULT {number}" for number in range(200))
    table = "Große `Kunden` %s"
    quoted = "`Große ``Kunden`` %s`"
    mysql_server.run(
        f"CREATE TABLE {quoted}({more}, `updated at` datetime(6) NOT NULL, `Note ``x`` %d` text, `Юзер` bigint PRIMARY KEY)"
        " DEFAULT CHARSET utf8mb4",
        f"INSERT INTO {quoted}(`Юзер`, `Note ``x`` %d`, `updated at`) VALUES (1, 'n1', now(6)), (2, 'n2', now(6))",
        database=name,
    )
    preproc = {"id": ref("Юзер"), "note": ref("Note `x` %d"), "updated_at": ref("updated at")}
    read = orders(shop(mysql_server, name), table=table, cursor="updated at", cdc=cdc, preproc=preproc)
    with deployed(tmp_path, read) as made:
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(1, "n1"), (2, "n2")])
        mysql_server.run(
            f"INSERT INTO {quoted}(`Юзер`, `Note ``x`` %d`, `updated at`) VALUES (3, 'n3', now(6))",
            f"UPDATE {quoted} SET `Note ``x`` %d` = 'new', `updated at` = now(6) WHERE `Юзер` = 2",
            database=name,
        )
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(1, "n1"), (2, "new"), (3, "n3")])
        assert letters(made) == []


@WAYS
def test_a_row_of_ten_megabytes(mysql_server: Server, name: str, tmp_path: Path, cdc: str) -> None:
    mysql_server.run(
        "CREATE TABLE orders(id bigint PRIMARY KEY, note longtext NOT NULL, updated_at datetime(6) NOT NULL)",
        "INSERT INTO orders VALUES (1, repeat('1', 10485760), now(6)), (2, repeat('2', 10485760), now(6))",
        database=name,
    )

    def sizes(made: Any) -> list[tuple[int, str, int]]:
        return [(number, note[:1], len(note)) for number, note in rows_of(made, "Orders", ["id", "note"])]

    try:
        with deployed(tmp_path, orders(shop(mysql_server, name), cdc=cdc)) as made:
            until(made, lambda: sizes(made) == [(i, str(i), 10 << 20) for i in (1, 2)])
            mysql_server.run(
                "UPDATE orders SET note = repeat('x', 11534336), updated_at = now(6) WHERE id = 2", database=name
            )
            until(made, lambda: len(sizes(made)) == 2 and sizes(made)[1] == (2, "x", 11 << 20))
            assert letters(made) == []
    finally:
        mysql_server.run("FLUSH BINARY LOGS")  # other tests read a short log


def write(server: Server, name: str, zone: str, number: int, clock: str) -> None:
    """Insert a row in a session with a zone."""
    insert = f"INSERT INTO moments VALUES ({number}, '{clock}', '{clock}')"
    server.run(f"SET time_zone = '{zone}'", insert, database=name)


def utc(hour: int, minute: int, micro: int = 0) -> datetime:
    return datetime(2026, 10, 25, hour, minute, 0, micro, UTC)


MOMENTS = {
    1: (utc(0, 30, 1), utc(2, 30, 1)),
    2: (utc(1, 30, 1), utc(2, 30, 1)),
    3: (utc(2, 30), utc(3, 30)),
    4: (utc(11, 30), utc(3, 30)),
    5: (utc(12, 45), utc(18, 30)),
}
"""The rows that are written: the instant, and the clock's reading taken as UTC."""


@WAYS
def test_zones_of_the_server_and_of_sessions(name: str, mysql_server: Server, tmp_path: Path, cdc: str) -> None:
    """A timestamp is an instant; a datetime is what is written. One hour of 25 October 2026 comes twice."""
    mysql_server.run(
        "CREATE TABLE moments(n bigint PRIMARY KEY, at timestamp(6) NOT NULL, naive datetime(6) NOT NULL)",
        database=name,
    )

    @source(
        shop(mysql_server, name).table("moments", None if cdc == "native" else "at"),
        disorder="14d",
        every="1s",
        cdc=cdc,
    )
    @dataset
    class Moments:
        n: int = field(key=True)
        at: datetime = field(timestamp=True)
        naive: datetime

    (before,) = mysql_server.run("SELECT @@global.time_zone")[0]
    try:
        mysql_server.run("SET GLOBAL time_zone = '-08:00'")
        write(mysql_server, name, "+02:00", 1, "2026-10-25 02:30:00.000001")  # summer time
        write(mysql_server, name, "+01:00", 2, "2026-10-25 02:30:00.000001")  # an hour later
        with deployed(tmp_path, Moments) as made:
            until(made, lambda: made.taken().get("Moments") == 2)
            write(mysql_server, name, "+01:00", 3, "2026-10-25 03:30:00")
            write(mysql_server, name, "-08:00", 4, "2026-10-25 03:30:00")
            mysql_server.run("SET GLOBAL time_zone = '+05:45'")
            write(mysql_server, name, "+05:45", 5, "2026-10-25 18:30:00")
            until(made, lambda: made.taken().get("Moments") == 5)
            found = {
                row["n"]: (row["at"], row["naive"]) for row in current(made.changes("Moments"), "n", LATER).to_dicts()
            }
            assert letters(made) == []
    finally:
        mysql_server.run(f"SET GLOBAL time_zone = '{before}'")

    assert found == MOMENTS


@WAYS
def test_values_that_other_databases_do_not_have(mysql_server: Server, name: str, tmp_path: Path, cdc: str) -> None:
    mysql_server.run(
        """CREATE TABLE odd(id bigint unsigned PRIMARY KEY, flags bit(10), picks set('a','b','c'), mood enum('sad','','happy'),
           y year, doc json, big bigint unsigned, at datetime(6) NOT NULL) DEFAULT CHARSET utf8mb4""",
        """INSERT INTO odd VALUES (1, b'1000000001', 'a,c', 'happy', 1999, '{"a": [1, "ü"]}', 9223372036854775807, now(6)),
           (2, NULL, '', '', 0, 'null', 18446744073709551615, now(6)), (3, 0, NULL, NULL, NULL, NULL, NULL, now(6))""",
        database=name,
    )

    @source(
        shop(mysql_server, name).table("odd", None if cdc == "native" else "at"), disorder="1d", every="1s", cdc=cdc
    )
    @dataset
    class Odd:
        id: int = field(key=True)
        picks: Optional[str]
        mood: Optional[str]
        y: Optional[int]
        doc: Optional[str]
        big: Optional[int]
        at: datetime

    with deployed(tmp_path, Odd) as made:
        until(made, lambda: len(letters(made)) + made.taken().get("Odd", 0) >= 3)
        found = {row["id"]: row for row in current(made.changes("Odd"), "id", LATER).to_dicts()}
        (letter,) = letters(made)
        assert (sorted(found), letter.field) == ([1, 3], "big")
        assert [found[1][each] for each in ("picks", "mood", "y")] == ["a,c", "happy", 1999]
        assert {found[3][each] for each in ("picks", "mood", "y", "doc", "big")} == {None}


@pytest.mark.parametrize("way", ["implicit", "declared", "added later", "declared later"])
def test_tables_that_retain_former_rows(mysql_server: Server, name: str, tmp_path: Path, way: str) -> None:
    """A table with system versioning logs a deletion as an update of the row's end, and an update as an insertion, too."""
    kind = "timestamp(6)"
    start, end = (f"GENERATED ALWAYS AS ROW {each}" for each in ("START", "END"))
    declared = f"began {kind} {start} INVISIBLE, ended {kind} {end}, PERIOD FOR SYSTEM_TIME(began, ended)"
    columns = "id bigint PRIMARY KEY, note text NOT NULL, updated_at datetime(6) NOT NULL DEFAULT now(6)"
    more = f", {declared}" if way == "declared" else ""
    versioning = "" if way.endswith("later") else "WITH SYSTEM VERSIONING"
    values = "(id, note) VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    create = f"CREATE TABLE orders({columns}{more}) {versioning}"
    mysql_server.run(create, f"INSERT INTO orders{values}", database=name)

    @source(shop(mysql_server, name).table("orders"), disorder="1d", cdc="native")
    @dataset
    class Events:
        id: int
        updated_at: datetime

    with deployed(tmp_path, orders(shop(mysql_server, name), cdc="native"), Events) as made:
        until(made, lambda: len(rows_of(made, "Orders", ["id", "note"])) == 3)
        if way == "added later":
            mysql_server.run("ALTER TABLE orders ADD SYSTEM VERSIONING", database=name)
        elif way == "declared later":
            added = f"ADD began {kind} {start}, ADD ended {kind} {end}, ADD PERIOD FOR SYSTEM_TIME(began, ended)"
            mysql_server.run(f"ALTER TABLE orders {added}, ADD SYSTEM VERSIONING", database=name)
        changes = (
            "UPDATE orders SET note = 'z' WHERE id = 1",
            "DELETE FROM orders WHERE id = 2",
            "UPDATE orders SET id = 30 WHERE id = 3",
            "INSERT INTO orders(id, note) VALUES (4, 'd')",
            "DELETE HISTORY FROM orders",
        )
        mysql_server.run(*changes, database=name)
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(1, "z"), (4, "d"), (30, "c")], 20.0)
        until(made, lambda: len(rows_of(made, "Events", ["id"])) + len(letters(made)) >= 7, 20.0)
        assert sorted(made.changes("Events")["id"]) == [1, 2, 3, 4]
        refused = sorted(each.reason.split(" of a row")[0] for each in letters(made))
        assert refused == ["a deletion", "an update", "an update"]


def test_a_table_whose_rows_end_with_transactions_is_refused(mysql_server: Server, name: str) -> None:
    ends = "GENERATED ALWAYS AS ROW START, e bigint unsigned GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME(s, e)"
    create = f"CREATE TABLE t(id int PRIMARY KEY, s bigint unsigned {ends}) WITH SYSTEM VERSIONING"
    mysql_server.run(create, database=name)
    with pytest.raises(InvalidValue, match=r"(?s)logged as statements.*timestamp\(6\)"):
        examine(shop(mysql_server, name).table("t"))


def test_a_dropped_column_behind_an_optional_field_is_null(mysql_server: Server, name: str, tmp_path: Path) -> None:
    @source(shop(mysql_server, name).table("t"), disorder="1d", cdc="native", preproc={"copy": ref("w")})
    @dataset
    class Dropped:
        id: int = field(key=True)
        v: Optional[int]
        copy: Optional[str]
        at: datetime

    at = "at datetime(6) NOT NULL DEFAULT '2026-03-01'"
    mysql_server.run(f"CREATE TABLE t(id int PRIMARY KEY, v int, w text, {at})", database=name)
    with deployed(tmp_path, Dropped) as made:
        changes = (
            "INSERT INTO t(id, v, w) VALUES (1, 1, 'a')",
            "ALTER TABLE t DROP v, DROP w",
            "INSERT INTO t(id) VALUES (2)",
        )
        mysql_server.run(*changes, database=name)
        until(made, lambda: rows_of(made, "Dropped", ["id", "v", "copy"])[-1:] == [(2, None, None)], 20.0)
        stop_polling(tmp_path)
        more = (
            "INSERT INTO t(id) VALUES (3)",
            "ALTER TABLE t ADD v int, ADD w text",
            "INSERT INTO t(id, v, w) VALUES (4, 4, 'd')",
        )
        mysql_server.run(*more, "ALTER TABLE t DROP v", "INSERT INTO t(id, w) VALUES (5, 'e')", database=name)
        expected = [(3, None, None), (4, 4, "d"), (5, None, "e")]
        until(made, lambda: rows_of(made, "Dropped", ["id", "v", "copy"])[2:] == expected, 20.0)
        assert letters(made) == []


OWN_NAMES = ("op", "committed", "start", "row", "newer", "identity", "before", "times", "again")
"""Names that umbel gives to columns of its own, besides those of a table."""


@WAYS
def test_columns_may_have_names_that_umbel_uses(mysql_server: Server, name: str, tmp_path: Path, cdc: str) -> None:
    more = ", ".join(f"_{each} varchar(9) DEFAULT 'd'" for each in OWN_NAMES)
    create = f"CREATE TABLE orders(id int PRIMARY KEY, {more}, updated_at datetime(6) NOT NULL DEFAULT now(6))"
    mysql_server.run(create, "INSERT INTO orders(id) VALUES (1), (2)", database=name)
    read = orders(shop(mysql_server, name), cdc=cdc, preproc={"note": ref("_op")})
    with deployed(tmp_path, read) as made:
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(1, "d"), (2, "d")], 20.0)
        mysql_server.run("INSERT INTO orders(id, _op) VALUES (3, 'x')", database=name)
        mysql_server.run("UPDATE orders SET _op = 'y', updated_at = now(6) WHERE id = 1", database=name)
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(1, "y"), (2, "d"), (3, "x")], 20.0)
        assert letters(made) == []
