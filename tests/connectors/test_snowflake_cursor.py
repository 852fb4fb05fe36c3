"""Tables of Snowflake, of a fake that speaks its protocol, read by a cursor: every row once, by one statement per period."""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as Number
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.connectors.killing import Worker
from tests.connectors.shop_datasets import deployed, letters, orders, process, rows_of, until
from tests.deployed import wait_until
from tests.servers.snowflake import PASSWORD, USER, FakeSnowflake, running
from umbel.connectors import Snowflake, source
from umbel.connectors.polling import stop_polling
from umbel.connectors.snowflake.server import ADDRESS
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal
from umbel.errors import InvalidValue, PackageError, Transient

__owner__ = "shop@example.com"
ORDERS = {"ID": "NUMBER(38,0)", "NOTE": "VARCHAR(16777216)", "UPDATED_AT": "TIMESTAMP_NTZ(9)"}
NOW = "now() AT TIME ZONE 'UTC'"


@pytest.fixture
def snow(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSnowflake]:
    with running() as fake:
        monkeypatch.setenv(ADDRESS, fake.address)
        yield fake


def shop(**options: Any) -> Snowflake:
    login = {"username": USER, "password": PASSWORD, "role": "READER", **options}
    return Snowflake(name="shop", account="org-acc", db_name="SHOP", schema="PUBLIC", warehouse="W", **login)


def inserted(snow: FakeSnowflake, first: int, last: int, at: str = NOW) -> None:
    snow.run(f"INSERT INTO ORDERS SELECT i, 'n' || i, {at} FROM range({first}, {last + 1}) t(i)")


def table(snow: FakeSnowflake) -> list[Any]:
    return [
        (each[0], each[1], each[2].replace(tzinfo=UTC))
        for each in snow.run("SELECT ID, NOTE, UPDATED_AT::TIMESTAMP FROM ORDERS ORDER BY 1")
    ]


def selects(snow: FakeSnowflake) -> list[str]:
    return [each for each in snow.statements if each.startswith("SELECT") and "LIMIT 0" not in each]


def test_rows_and_their_updates_arrive(snow: FakeSnowflake, tmp_path: Path) -> None:
    """Results have more than one chunk."""
    snow.create("ORDERS", ORDERS, ["ID"])
    inserted(snow, 1, 10_000)
    with deployed(tmp_path, orders(shop())) as made:
        until(made, lambda: made.taken().get("Orders") == 10_000)
        snow.run(f"UPDATE ORDERS SET NOTE = 'it''s \\ new', UPDATED_AT = {NOW} WHERE ID <= 10")
        inserted(snow, 10_001, 10_005)
        until(made, lambda: made.taken()["Orders"] == 10_015)
        assert rows_of(made, "Orders", ["id", "note", "updated_at"]) == table(snow)
        assert letters(made) == []


def keyless(cursor: str, **how: Any) -> Any:
    @source(shop().table("EVENTS", cursor), **{"disorder": "1h", "every": "1s", "cdc": "append", **how})
    @dataset
    class Events:
        n: int
        at: datetime

    return Events


@pytest.mark.parametrize("kind", ["TIMESTAMP_NTZ(9)", "TIMESTAMP_LTZ(9)", "TIMESTAMP_TZ(9)"])
def test_rows_with_one_cursor_and_late_ones_are_neither_lost_nor_doubled(
    snow: FakeSnowflake, tmp_path: Path, kind: str
) -> None:
    snow.create("EVENTS", {"N": "NUMBER(38,0)", "AT": kind})
    at = "TIMESTAMP '2026-01-01 12:00:00.123456'"
    snow.run(f"INSERT INTO EVENTS SELECT i, {at} FROM range(100) t(i)")
    with deployed(tmp_path, keyless("at")) as made:
        until(made, lambda: made.taken().get("Events") == 100)
        snow.run(f"INSERT INTO EVENTS SELECT i, {at} FROM range(100, 150) t(i)")
        snow.run(f"INSERT INTO EVENTS SELECT i, {at} - INTERVAL 30 MINUTE FROM range(150, 160) t(i)")
        snow.run(f"INSERT INTO EVENTS VALUES (7, {at})")  # equal to one that was read: a row of its own
        until(made, lambda: made.taken()["Events"] == 161)
        process(made, 2.5)
        assert sorted(made.changes("Events").select("n").to_series()) == sorted([*range(160), 7])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("NUMBER(38,0)", "i"),
        pytest.param("VARCHAR(20)", "printf('%06d''\\', i)", marks=pytest.mark.nightly),
        pytest.param("DATE", "DATE '2026-01-01' + i::INT", marks=pytest.mark.nightly),
    ],
)
def test_other_cursors(snow: FakeSnowflake, tmp_path: Path, kind: str, value: str) -> None:
    """A number that commits late, within `disorder`, is found."""
    snow.create("EVENTS", {"N": "NUMBER(38,0)", "AT": "TIMESTAMP_NTZ(9)", "C": kind})
    late = "INSERT INTO EVENTS SELECT i, now()::TIMESTAMP, " + value + " FROM range({}, {}) t(i)"
    snow.run(late.format(0, 50), late.format(60, 70))
    with deployed(tmp_path, keyless("c", disorder="3s" if kind != "DATE" else "40d")) as made:
        until(made, lambda: made.taken().get("Events") == 60)
        snow.run(late.format(50, 60), late.format(70, 80))
        until(made, lambda: made.taken()["Events"] == 80)
        until(made, lambda: ">=" in selects(snow)[-1])
        process(made, 1.5)
        snow.run(late.format(80, 90))
        until(made, lambda: made.taken()["Events"] == 90)
        assert sorted(made.changes("Events")["n"]) == list(range(90))
        assert letters(made) == []


def test_one_statement_per_period(snow: FakeSnowflake, tmp_path: Path) -> None:
    snow.create("ORDERS", ORDERS)
    inserted(snow, 1, 10)
    with deployed(tmp_path, orders(shop(), every="2s")) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        before, begun = len(selects(snow)), time.monotonic()
        process(made, 5)
        stop_polling(tmp_path)
        assert len(selects(snow)) - before <= (time.monotonic() - begun) / 2 + 2
        assert len(snow.sessions) == snow.ended, "each session is ended"


THINGS = {
    "N": "NUMBER(38,0)", "EXACT": "NUMBER(38,10)", "REAL": "FLOAT", "NAN": "FLOAT", "INF": "FLOAT", "YES": "BOOLEAN",
    "DAY": "DATE", "CLOCK": "TIME(9)", "NAIVE": "TIMESTAMP_NTZ(9)", "LOCAL": "TIMESTAMP_LTZ(9)",
    "ZONED": "TIMESTAMP_TZ(9)", "ANY": "VARIANT", "LIST": "ARRAY", "RAW": "BINARY(8388608)", "NOTHING": "NUMBER(10,2)",
    "Mixed": "VARCHAR(10)",
}  # fmt: skip


def test_types(snow: FakeSnowflake, tmp_path: Path) -> None:
    snow.create("THINGS", THINGS)
    snow.run(
        """INSERT INTO THINGS VALUES (-9223372036854775808, 123456789012345678.0123456789, 0.1::DOUBLE + 0.2, 'NaN',
           '-Infinity', true, '2024-02-29', '12:34:56.789012', '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56.789012+00',
           '2024-02-29 12:34:56.789012+05:30', '{"a": [1, null, "ä"]}', '[1, 2]', '\\x00\\xFF'::BLOB, NULL, 'ä')"""
    )

    @source(shop().table("things", "NAIVE"), disorder="1000d", cdc="append", every="1s")
    @dataset
    class Things:
        n: int
        exact: Decimal[10]
        real: float
        nan: float
        inf: float
        yes: bool
        day: date
        clock: str
        naive: datetime = field(timestamp=True)
        local: datetime
        zoned: datetime
        any: str
        list: list[int]
        raw: bytes
        nothing: Optional[Decimal[2]]
        Mixed: str

    with deployed(tmp_path, Things) as made:
        until(made, lambda: made.taken().get("Things") == 1)
        assert letters(made) == []
        (found,) = made.changes("Things").select(list(Things.schema())).to_dicts()
    at = datetime(2024, 2, 29, 12, 34, 56, 789012, UTC)
    assert math.isnan(found.pop("nan"))
    assert found == {
        "n": -(2**63), "exact": Number("123456789012345678.0123456789"), "real": 0.1 + 0.2, "inf": -math.inf,
        "yes": True, "day": date(2024, 2, 29), "clock": "12:34:56.789012", "naive": at, "local": at,
        "zoned": at - timedelta(hours=5, minutes=30), "any": '{"a": [1, null, "ä"]}', "list": [1, 2], "raw": b"\x00\xff",
        "nothing": None, "Mixed": "ä",
    }  # fmt: skip


def test_errors_at_commit_say_what_to_do(snow: FakeSnowflake, tmp_path: Path) -> None:
    snow.create("ORDERS", ORDERS)
    snow.create("SECRET", ORDERS)
    snow.create("FLOATS", {**ORDERS, "UPDATED_AT": "FLOAT"})
    snow.forbidden.add("SECRET")
    for made, reason in [
        (orders(shop(password="wrong-8731")), r"Incorrect username or password(?s:.*)correct username="),
        (orders(shop(), table="nothing"), r"'NOTHING' does not exist(?s:.*)GRANT SELECT"),
        (orders(shop(), table="secret"), r"Insufficient privileges(?s:.*)GRANT SELECT"),
        (orders(shop(), cursor="changed_at"), r"no column 'changed_at'"),
        (orders(shop(), table="floats"), r"of type FLOAT cannot be a cursor"),
        (orders(shop(), table='a."b'), r"is no name of a table"),
    ]:
        with pytest.raises(InvalidValue, match=reason) as error, deployed(tmp_path, made):
            pass
        assert "wrong-8731" not in str(error.value)
        assert PASSWORD not in repr(shop()) + str(error.value)


def test_a_server_that_is_away_for_a_while(
    snow: FakeSnowflake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from umbel.connectors.snowflake import server

    monkeypatch.setattr(server, "REQUEST", 1)
    monkeypatch.setattr(server, "PATIENCE", 1)
    snow.create("ORDERS", ORDERS)
    inserted(snow, 1, 10)
    with deployed(tmp_path, orders(shop())) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        snow.away = True
        inserted(snow, 11, 20)
        process(made, 3)
        snow.away = False
        until(made, lambda: made.taken()["Orders"] == 20)
        assert letters(made) == []
    monkeypatch.setenv(ADDRESS, "http://127.0.0.1:9")
    with pytest.raises(Transient, match="can be reached"), deployed(tmp_path / "other", orders(shop())):
        pass


@pytest.mark.nightly
def test_a_killed_worker_goes_on_where_it_was(snow: FakeSnowflake, tmp_path: Path) -> None:
    chance = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")
    snow.create("ORDERS", ORDERS, ["ID"])
    snow.create("EVENTS", {"N": "NUMBER(38,0)", "AT": "TIMESTAMP_NTZ(9)"})
    inserted(snow, 1, 50_000)
    snow.run(f"INSERT INTO EVENTS SELECT i, {NOW} FROM range(50000) t(i)")

    def write() -> None:
        for step in range(40):
            inserted(snow, first := 50_001 + step * 100, first + 99)
            snow.run(f"INSERT INTO EVENTS SELECT i, {NOW} FROM range({first - 1}, {first + 99}) t(i)")
            low = chance.randrange(50_000)
            snow.run(f"UPDATE ORDERS SET NOTE = 'new', UPDATED_AT = {NOW} WHERE ID BETWEEN {low} AND {low + 100}")
            time.sleep(0.2)

    with deployed(tmp_path, orders(shop(), disorder="20s"), keyless("at", disorder="20s")) as made:
        worker, writer = Worker(tmp_path / "umbel", tmp_path / "worker.log"), threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(5):
                worker.begin()
                time.sleep(random.uniform(0.0, 1.5))
                worker.kill("driver")
            writer.join()

            def is_done() -> bool:
                worker.mind()
                if len(made.changes("Events")) < 54_000:
                    return False
                return rows_of(made, "Orders", ["id", "note", "updated_at"]) == table(snow)

            wait_until(is_done, lambda: (tmp_path / "worker.log").read_text()[-3000:], 120)
            assert sorted(made.changes("Events")["n"]) == list(range(54_000))
            assert letters(made) == []
        finally:
            worker.end()
            writer.join()


def test_a_missing_package_is_named_at_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowflake.connector", None)
    with pytest.raises(PackageError, match=r"pip install 'umbel\[snowflake\]'"), deployed(tmp_path, orders(shop())):
        pass
