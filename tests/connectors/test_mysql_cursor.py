"""Tables of a real MariaDB server read by a cursor: every row once, by one statement per period."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.connectors.mysql_shop import ORDERS, database, shop, user
from tests.connectors.shop_datasets import deployed, letters, orders, process, rows_of, until
from tests.servers.mysql import PASSWORD, MySQLServer
from umbel.connectors import source
from umbel.connectors.mysql import reading
from umbel.connectors.polling import stop_polling
from umbel.datasets import dataset
from umbel.definitions.secret import Secret
from umbel.dtypes import Decimal, struct
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


def keyless(mysql: Any, cursor: str, every: str = "1s", disorder: str = "1h", table: str = "events") -> Any:
    @source(mysql.table(table, cursor), disorder=disorder, every=every, cdc="append")
    @dataset
    class Events:
        n: int
        at: datetime

    return Events


@pytest.mark.parametrize(
    ("column", "keys"),
    [(each, "n int") for each in ("n", "word", "day", "stamp", "exact", "inexact")]
    + [(each, "id bigint AUTO_INCREMENT PRIMARY KEY, n int") for each in ("c", "n")],
)
def test_equal_cursors_are_neither_lost_nor_doubled(
    mysql_server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, keys: str
) -> None:
    monkeypatch.setattr(reading, "PART_BYTES", 2000)  # parts end among equal values
    monkeypatch.setattr(reading, "AT_ONCE", 7)
    mysql_server.run(
        f"""CREATE TABLE events({keys}, at datetime(6) DEFAULT now(6), c datetime(3), word varchar(20) COLLATE utf8mb4_bin, day date,
            stamp timestamp NULL, exact decimal(30, 10), inexact double)""",
        database=name,
    )

    def more(first: int, last: int) -> None:
        mysql_server.run(
            f"""INSERT INTO events(n, c, word, day, stamp, exact, inexact)
                SELECT seq DIV 100, t, concat('w', lpad(seq DIV 100, 5, '0'), if(seq % 2, ' ', '')), date('2024-01-01') + INTERVAL seq DIV 300 DAY,
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
    found = [line for line in read if "LIMIT 0" not in line]
    assert 3 <= len(found) <= (time.monotonic() - start) / 2 + 1
    assert all(f"ORDER BY `{cursor}`" in line for line in found)


@struct
class Size:
    width: int
    height: int


THINGS = (
    """CREATE TABLE things(
        at timestamp(6) NULL, tiny tinyint, tinyu tinyint unsigned, small smallint, smallu smallint unsigned, medium mediumint,
        mediumu mediumint unsigned, normal int, normalu int unsigned, big bigint, bigu bigint unsigned, made year, yes tinyint(1),
        exact decimal(12, 3), wide decimal(28, 10), single float, other float, `double` double, bits bit(12), flag bit(1),
        words text CHARACTER SET latin1, short varchar(10), fixed char(5), doc json, list json, size json, naive datetime, fine datetime(4),
        day date, clock time(2), raw varbinary(10), padded binary(4), large blob, feeling enum('sad', 'happy, ever'), tags set('a', 'b', 'c'),
        id uuid, address inet6, big5 varchar(300) CHARACTER SET utf16, nothing int, after_that int unsigned)""",
    """INSERT INTO things VALUES (
        '2024-02-29 12:34:56.789012', -128, 255, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295, -9223372036854775808,
        9223372036854775807, 2024, true, -123456789.125, -123456789012345678.0123456789, 0.1, 16777217, 1e300, b'101010101010', b'1',
        'a,"b"\\n\\\\N\\u00e9 \u00e9', '', 'ab', '{"a": 1}', '[1, 2]', '{"width": 1, "height": 2}', '2024-01-01 00:00:00',
        '2024-01-01 00:00:00.0501', '2024-02-29', '-838:59:59.25', x'00ff', x'ff00', x'00', 'happy, ever', 'a,c',
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '::ffff:1.2.3.4', '\u6f22\U0001f600', NULL, 4000000000)""",
    """INSERT INTO things(at, words) VALUES ('2024-03-01', 'all others are null')""",
)
THING = {
    "at": datetime(2024, 2, 29, 12, 34, 56, 789012, UTC),
    "tiny": -128,
    "tinyu": 255,
    "small": -32768,
    "smallu": 65535,
    "medium": -8388608,
    "mediumu": 16777215,
    "normal": -2147483648,
    "normalu": 4294967295,
    "big": -9223372036854775808,
    "bigu": 9223372036854775807,
    "made": 2024,
    "yes": True,
    "exact": Number("-123456789.125"),
    "wide": Number("-123456789012345678.0123456789"),
    "single": 0.1,
    "other": 16777216.0,
    "double": 1e300,
    "bits": 0b101010101010,
    "flag": True,
    "words": 'a,"b"\n\\Nu00e9 \u00e9',
    "short": "",
    "fixed": "ab",
    "doc": '{"a": 1}',
    "list": [1, 2],
    "size": {"width": 1, "height": 2},
    "naive": datetime(2024, 1, 1, tzinfo=UTC),
    "fine": datetime(2024, 1, 1, 0, 0, 0, 50100, UTC),
    "day": date(2024, 2, 29),
    "clock": "-838:59:59.25",
    "raw": b"\x00\xff",
    "padded": b"\xff\x00\x00\x00",
    "large": b"\x00",
    "feeling": "happy, ever",
    "tags": "a,c",
    "id": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "address": "::ffff:1.2.3.4",
    "big5": "\u6f22\U0001f600",
    "nothing": None,
    "after_that": 4000000000,
}


def things(mysql: Any, cursor: str | None, **options: Any) -> Any:
    @source(mysql.table("things", cursor), disorder="14d", **options)
    @dataset
    class Things:
        at: datetime
        tiny: Optional[int]
        tinyu: Optional[int]
        small: Optional[int]
        smallu: Optional[int]
        medium: Optional[int]
        mediumu: Optional[int]
        normal: Optional[int]
        normalu: Optional[int]
        big: Optional[int]
        bigu: Optional[int]
        made: Optional[int]
        yes: Optional[bool]
        exact: Optional[Decimal[3]]
        wide: Optional[Decimal[10]]
        single: Optional[float]
        other: Optional[float]
        double: Optional[float]
        bits: Optional[int]
        flag: Optional[bool]
        words: str
        short: Optional[str]
        fixed: Optional[str]
        doc: Optional[str]
        list: Optional[list[int]]
        size: Optional[Size]
        naive: Optional[datetime]
        fine: Optional[datetime]
        day: Optional[date]
        clock: Optional[str]
        raw: Optional[bytes]
        padded: Optional[bytes]
        large: Optional[bytes]
        feeling: Optional[str]
        tags: Optional[str]
        id: Optional[str]
        address: Optional[str]
        big5: Optional[str]
        nothing: Optional[int]
        after_that: Optional[int]

    return Things


@pytest.mark.parametrize("way", ["by a cursor", "in the first copy", "as changes"])
def test_types_are_mapped_exactly(mysql_server: Server, name: str, tmp_path: Path, way: str) -> None:
    """By each way of reading."""
    mysql_server.run(THINGS[0], database=name)
    if way != "as changes":
        mysql_server.run(*THINGS[1:], database=name)
    mysql = shop(mysql_server, name)
    read = things(mysql, "at", every="1s", cdc="append") if way == "by a cursor" else things(mysql, None, cdc="native")
    with deployed(tmp_path, read) as made:
        if way == "as changes":
            until(made, lambda: not any(each.is_loading for each in made.deployment._sources()[1]))
            mysql_server.run(*THINGS[1:], database=name)
        until(made, lambda: made.taken().get("Things") == 2)
        assert letters(made) == []
        first, second = made.changes("Things").sort("at").select(list(read.schema())).to_dicts()
    assert first == THING
    assert {column for column, value in second.items() if value is not None} == {"at", "words"}


@pytest.mark.parametrize("way", ["by a cursor", "as changes"])
def test_values_that_no_field_has_are_rejected(mysql_server: Server, name: str, tmp_path: Path, way: str) -> None:
    """Dates of zeros, and numbers above 2^63."""
    values = (
        "'0000-00-00', 1, now()",
        "'2024-00-10', 2, now()",
        f"'2024-01-01', {2**63 - 1}, now()",
        f"'2024-01-01', {2**64 - 1}, now()",
    )
    mysql_server.run("CREATE TABLE odd(day date, n bigint unsigned, at datetime)", database=name)
    odd = shop(mysql_server, name).table("odd", "at" if way == "by a cursor" else None)

    @source(odd, disorder="14d", every="1s", cdc="append" if way == "by a cursor" else "native")
    @dataset
    class Odd:
        day: date
        n: int
        at: datetime

    with deployed(tmp_path, Odd) as made:
        until(made, lambda: not any(each.is_loading for each in made.deployment._sources()[1]))
        mysql_server.run("SET sql_mode = ''", *(f"INSERT INTO odd VALUES ({each})" for each in values), database=name)
        until(made, lambda: made.taken().get("Odd") == 4)
        assert made.changes("Odd").select("day", "n").rows() == [(date(2024, 1, 1), 2**63 - 1)]
        assert sorted(each.field for each in letters(made)) == ["day", "day", "n"]
        assert any("0000-00-00" in each.reason for each in letters(made))


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
        (split,) = made.deployment.plans().read(1).splits
        opened = next(each for each in made.deployment._sources()[1])
        for _ in range(2):
            (batch,) = opened.open(split.split, {"note": Str()})
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
        assert [each for each in files(tmp_path / "a") if PASSWORD.encode() in each.read_bytes()] == []
    read = shop(mysql_server, name)
    assert PASSWORD not in f"{read!r} {read.table('orders', 'updated_at')!r}"
    with deployed(tmp_path / "b", orders(read)) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        others = [each for each in files(tmp_path / "b") if not each.name.startswith("catalog.db")]
        assert [each for each in others if PASSWORD.encode() in each.read_bytes()] == []


def files(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert len(found) > 5
    return found
