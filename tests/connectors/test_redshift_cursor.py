"""Tables of Redshift, of its protocol before a real PostgreSQL, read by a cursor: every row once, by one statement per period."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as Number
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.connectors import warehouse_kills
from tests.connectors.shop_datasets import deployed, letters, orders, process, rows_of, until
from tests.servers.postgres import PASSWORD, USER, PostgresServer
from tests.servers.redshift import PREPARED, FakeRedshift, running
from umbel.connectors import Redshift, source
from umbel.connectors.polling import stop_polling
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal
from umbel.errors import InvalidValue, NotSupported, PackageError, Transient

__owner__ = "shop@example.com"
TABLES = (
    'DROP SCHEMA IF EXISTS "sh""op" CASCADE',
    'CREATE SCHEMA "sh""op"',
    'CREATE TABLE "sh""op".orders(id bigint, note varchar(65535), updated_at timestamp)',
)
NOW = "clock_timestamp() AT TIME ZONE 'UTC'"
SHOP = '"sh""op"'


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> PostgresServer:
    postgres_server.run("DROP DATABASE IF EXISTS warehouse", "CREATE DATABASE warehouse")
    postgres_server.run(*PREPARED, database="warehouse")
    return postgres_server


@pytest.fixture
def cluster(database: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRedshift]:
    database.run(*TABLES, database="warehouse")
    with running(database, tmp_path) as made:
        monkeypatch.setenv("SSL_CERT_FILE", str(made.certificate))
        yield made


def shop(cluster: FakeRedshift, **options: Any) -> Redshift:
    login = {"username": USER, "password": PASSWORD, "host": "localhost", "port": cluster.port, **options}
    return Redshift(**{"name": "shop", "db_name": "warehouse", "schema": 'sh"op', **login})


def run(cluster: FakeRedshift, *statements: str) -> list[Any]:
    return cluster.postgres.run(*statements, database="warehouse")


def inserted(cluster: FakeRedshift, first: int, last: int, at: str = NOW) -> None:
    run(cluster, f"INSERT INTO {SHOP}.orders SELECT i, 'n' || i, {at} FROM generate_series({first}, {last}) i")


def table(cluster: FakeRedshift) -> list[Any]:
    found = run(cluster, f"SELECT id, note, updated_at FROM {SHOP}.orders ORDER BY 1")
    return [(each[0], each[1], each[2].replace(tzinfo=UTC)) for each in found]


def reads(cluster: FakeRedshift) -> list[str]:
    return [each for each in cluster.statements if each.startswith("DECLARE")]


def test_rows_and_their_updates_arrive(cluster: FakeRedshift, tmp_path: Path) -> None:
    """The results have more rows than one answer, and than one frame."""
    inserted(cluster, 1, 45_000)
    with deployed(tmp_path, orders(shop(cluster))) as made:
        until(made, lambda: made.taken().get("Orders") == 45_000)
        run(cluster, f"UPDATE {SHOP}.orders SET note = 'it''s \\ new', updated_at = {NOW} WHERE id <= 10")
        inserted(cluster, 45_001, 45_005)
        until(made, lambda: made.taken()["Orders"] == 45_015)
        assert rows_of(made, "Orders", ["id", "note", "updated_at"]) == table(cluster)
        assert letters(made) == []
    assert all(each["application_name"] == "umbel" for each in cluster.starts)


def keyless(cluster: FakeRedshift, cursor: str, **how: Any) -> Any:
    @source(shop(cluster).table("events", cursor), **{"disorder": "1h", "every": "1s", "cdc": "append", **how})
    @dataset
    class Events:
        n: int
        at: datetime

    return Events


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_rows_with_one_cursor_and_late_ones_are_neither_lost_nor_doubled(
    cluster: FakeRedshift, tmp_path: Path, kind: str
) -> None:
    run(cluster, "SET timezone = 'UTC'", f"CREATE TABLE {SHOP}.events(n bigint, at {kind})")
    at = "TIMESTAMP '2026-01-01 12:00:00.123456'" + (" AT TIME ZONE 'UTC'" if kind == "timestamptz" else "")
    into = f"INSERT INTO {SHOP}.events SELECT i, {at}"
    run(cluster, f"{into} FROM generate_series(0, 99) i")
    with deployed(tmp_path, keyless(cluster, "at")) as made:
        until(made, lambda: made.taken().get("Events") == 100)
        run(cluster, f"{into} FROM generate_series(100, 149) i")
        run(cluster, f"{into} - INTERVAL '30 minutes' FROM generate_series(150, 159) i")
        run(cluster, f"{into} FROM generate_series(7, 7) i")  # equal to one that was read: a row of its own
        until(made, lambda: made.taken()["Events"] == 161)
        process(made, 2.5)
        assert sorted(made.changes("Events").select("n").to_series()) == sorted([*range(160), 7])


HOSTILE = "E'\\\\ ''%s ? :x $1 {{}} -- /* \"Q\" ä'"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        pytest.param("smallint", "i", marks=pytest.mark.nightly),
        pytest.param("bigint", "i - 9223372036854775808::numeric", marks=pytest.mark.nightly),
        pytest.param("numeric(38, 10)", "i + 0.0000000001", marks=pytest.mark.nightly),
        ("varchar(200)", f"lpad(i::text, 6, '0') || {HOSTILE}"),
        pytest.param("char(60)", f"lpad(i::text, 6, '0') || {HOSTILE}", marks=pytest.mark.nightly),
        pytest.param("date", "DATE '2026-01-01' + i", marks=pytest.mark.nightly),
    ],
)
def test_other_cursors(cluster: FakeRedshift, tmp_path: Path, kind: str, value: str) -> None:
    """A value that is inserted late, within `disorder`, is found; all rows of one value are read once."""
    run(cluster, f"CREATE TABLE {SHOP}.events(n bigint, at timestamp, c {kind})")
    late = f"INSERT INTO {SHOP}.events SELECT i, now(), ({value})::{kind} FROM generate_series({{}}, {{}}) i"
    run(cluster, late.format(0, 49), late.format(60, 69))
    with deployed(tmp_path, keyless(cluster, "c", disorder="8s" if kind != "date" else "40d")) as made:
        until(made, lambda: made.taken().get("Events") == 60)
        run(cluster, late.format(50, 59), late.format(69, 69))
        until(made, lambda: made.taken()["Events"] == 71)
        until(made, lambda: ">=" in reads(cluster)[-1])
        run(cluster, late.format(70, 79), late.format(69, 69))
        until(made, lambda: made.taken()["Events"] == 82)
        process(made, 2.5)
        assert sorted(made.changes("Events").select("n").to_series()) == sorted([*range(80), 69, 69])
        assert letters(made) == []


def test_one_statement_per_period(cluster: FakeRedshift, tmp_path: Path) -> None:
    """Besides, the types are requested by a statement without rows."""
    inserted(cluster, 1, 10)
    with deployed(tmp_path, orders(shop(cluster), every="2s")) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        before, begun = len(reads(cluster)), time.monotonic()
        process(made, 5)
        stop_polling(tmp_path)
        assert len(reads(cluster)) - before <= (time.monotonic() - begun) / 2 + 2
        others = {each.partition(" ")[0] for each in cluster.statements if "LIMIT 0" not in each}
        assert others <= {"begin", "SET", "DECLARE", "FETCH"}
        assert all(each.endswith('ORDER BY t."updated_at"') for each in reads(cluster))


THINGS = """CREATE TABLE "sh""op".things(small smallint, n integer, big bigint, exact numeric(38, 10), single real, double float8,
    nan float8, inf float8, yes boolean, no boolean, day date, clock time, naive timestamp, zoned timestamptz, fixed char(8),
    mixed varchar(100), any_json super, list super, word super, raw varbyte, nothing numeric(10, 2), absent super)"""


def things(cluster: FakeRedshift) -> Any:
    @source(shop(cluster).table("things", "naive"), disorder="1000d", cdc="append", every="1s")
    @dataset
    class Things:
        small: int
        n: int
        big: int
        exact: Decimal[10]
        single: float
        double: float
        nan: float
        inf: float
        yes: bool
        no: bool
        day: date
        clock: str
        naive: datetime = field(timestamp=True)
        zoned: datetime
        fixed: str
        Mixed: str
        any_json: str
        list: list[int]
        word: str
        raw: bytes
        nothing: Optional[Decimal[2]]
        absent: Optional[str]

    return Things


def test_types(cluster: FakeRedshift, tmp_path: Path) -> None:
    run(
        cluster,
        THINGS,
        """INSERT INTO "sh""op".things VALUES (-32768, 2147483647, -9223372036854775808, 123456789012345678.0123456789,
           0.1, 0.1::float8 + 0.2::float8, 'NaN', '-Infinity', true, false, '2024-02-29', '12:34:56.789012',
           '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56.789012+05:30', 'ä ö', E'ä\\n''"\\\\ ', '{"a": [1, null, "ä"]}',
           '[1, 2]', '"abc"', '\\x00ff', NULL, NULL)""",
    )

    Things = things(cluster)
    with deployed(tmp_path, Things) as made:
        until(made, lambda: made.taken().get("Things") == 1)
        assert letters(made) == []
        (found,) = made.changes("Things").select(list(Things.schema())).to_dicts()
    at = datetime(2024, 2, 29, 12, 34, 56, 789012, UTC)
    assert math.isnan(found.pop("nan"))
    assert found == {
        "small": -(2**15), "n": 2**31 - 1, "big": -(2**63), "exact": Number("123456789012345678.0123456789"),
        "single": 0.10000000149011612, "double": 0.1 + 0.2, "inf": -math.inf, "yes": True, "no": False,
        "day": date(2024, 2, 29), "clock": "12:34:56.789012", "naive": at,
        "zoned": at - timedelta(hours=5, minutes=30), "fixed": "ä ö", "Mixed": "ä\n'\"\\ ",
        "any_json": '{"a": [1, null, "ä"]}', "list": [1, 2], "word": '"abc"', "raw": b"\x00\xff", "nothing": None,
        "absent": None,
    }  # fmt: skip


def test_values_that_are_no_instants_or_too_large_are_dead_letters(cluster: FakeRedshift, tmp_path: Path) -> None:
    run(cluster, f"CREATE TABLE {SHOP}.events(n numeric(38, 0), at timestamp, c bigint)")
    run(
        cluster,
        f"""INSERT INTO {SHOP}.events VALUES (1, '2026-01-01', 1), (2, '0044-03-15 BC', 2), (3, '20000-01-01', 3),
            (99999999999999999999999999999999999999, '2026-01-01', 4), (5, NULL, 5), (6, '2026-01-02', 6)""",
    )
    with deployed(tmp_path, keyless(cluster, "c", disorder="1d")) as made:
        until(made, lambda: len(letters(made)) == 4)
        process(made, 2.5)
        assert sorted(made.changes("Events").select("n").to_series()) == [1, 6]
        assert len(letters(made)) == 4


def test_a_highest_instant_that_python_does_not_have_is_reported(cluster: FakeRedshift, tmp_path: Path) -> None:
    run(cluster, f"CREATE TABLE {SHOP}.events(n bigint, at timestamp)")
    run(cluster, f"INSERT INTO {SHOP}.events VALUES (1, '2026-01-01'), (2, '20000-01-01')")
    with deployed(tmp_path, keyless(cluster, "at")) as made:
        until(made, lambda: any("the highest 'at' is 20000-01-01" in each.reason for each in letters(made)))


def test_errors_at_commit_say_what_to_do(cluster: FakeRedshift, tmp_path: Path) -> None:
    run(
        cluster,
        f"CREATE TABLE {SHOP}.floats(id bigint, note text, updated_at float8)",
        f"CREATE TABLE {SHOP}.times(id bigint, note text, updated_at time)",
        f"CREATE TABLE {SHOP}.part(id bigint, note text, updated_at timestamp, secret text)",
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN PASSWORD 'other-4711'",
        f"GRANT USAGE ON SCHEMA {SHOP} TO reader",
        f"GRANT SELECT(id, note, updated_at) ON {SHOP}.part TO reader",
    )
    cluster.users["reader"] = "other-4711"
    reader = {"username": "reader", "password": "other-4711"}
    for made, reason in [
        (orders(shop(cluster, password="wrong-8731")), r"password authentication failed(?s:.*)correct username="),
        (orders(shop(cluster, db_name="nothing")), r"does not exist(?s:.*)correct db_name="),
        (orders(shop(cluster), table="nothing"), r"nothing" + r'" does not exist(?s:.*)correct schema='),
        (orders(shop(cluster, schema="nowhere")), r'"nowhere.orders" does not exist(?s:.*)correct schema='),
        (orders(shop(cluster, **reader)), r"permission denied for table orders(?s:.*)GRANT SELECT(?s:.*)TO reader"),
        (orders(shop(cluster), cursor="updated_by"), r'"updated_by" does not exist(?s:.*)did you mean .updated_at.'),
        (orders(shop(cluster), table="floats"), r"of type double precision cannot be a cursor"),
        (orders(shop(cluster), table="times"), r"of type time cannot be a cursor"),
        (orders(shop(cluster), table="a.b.c.d"), r"is no name of a table"),
        (orders(shop(cluster, host="127.0.0.1")), r"certificate of 127.0.0.1 is refused(?s:.*)the endpoint"),
    ]:
        with pytest.raises(InvalidValue, match=reason) as error, deployed(tmp_path / str(abs(hash(reason))), made):
            pass
        assert "wrong-8731" not in str(error.value)
        assert PASSWORD not in repr(shop(cluster)) + str(error.value)
    with deployed(tmp_path, orders(shop(cluster, **reader), table="part")):
        pass  # some of the columns are enough
    with (
        pytest.raises(NotSupported, match=r"cdc 'native'(?s:.*)upsert"),
        deployed(tmp_path / "native", native(cluster)),
    ):
        pass


def native(cluster: FakeRedshift) -> Any:
    @source(shop(cluster).table("orders", "updated_at"), disorder="1h", cdc="native")
    @dataset(index=True)
    class Orders:
        id: int = field(key=True)
        updated_at: datetime

    return Orders


def test_a_server_that_is_away_or_breaks_off(cluster: FakeRedshift, tmp_path: Path) -> None:
    inserted(cluster, 1, 10)
    with deployed(tmp_path, orders(shop(cluster))) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        cluster.away = True
        inserted(cluster, 11, 20)
        process(made, 3)
        cluster.away, breaks = False, iter([True])
        cluster.breaks = lambda statement: statement.startswith("FETCH") and next(breaks, False)
        until(made, lambda: made.taken()["Orders"] == 20)
        assert next(breaks, None) is None
        assert letters(made) == []
    cluster.close()
    with pytest.raises(Transient, match="security group"), deployed(tmp_path / "other", orders(shop(cluster))):
        pass


@pytest.mark.nightly
def test_a_killed_worker_goes_on_where_it_was(cluster: FakeRedshift, tmp_path: Path) -> None:
    """The reader is that of BigQuery, whose worker is killed in every run."""
    run(cluster, f"CREATE TABLE {SHOP}.events(n bigint, at timestamp)")
    inserted(cluster, 1, warehouse_kills.EXISTING)
    into = f"INSERT INTO {SHOP}.events SELECT i, {NOW} FROM generate_series"
    run(cluster, f"{into}(0, {warehouse_kills.EXISTING - 1}) i")

    def write(first: int, low: int) -> None:
        inserted(cluster, first, first + 99)
        run(cluster, f"{into}({first - 1}, {first + 98}) i")
        run(
            cluster, f"UPDATE {SHOP}.orders SET note = 'new', updated_at = {NOW} WHERE id BETWEEN {low} AND {low + 100}"
        )

    datasets = [orders(shop(cluster), disorder="60s"), keyless(cluster, "at", disorder="60s")]
    warehouse_kills.run(tmp_path, datasets, write, lambda: table(cluster))


def test_a_missing_package_is_named_at_commit(
    cluster: FakeRedshift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redshift_connector", None)
    made = orders(shop(cluster))
    with pytest.raises(PackageError, match=r"pip install 'umbel\[redshift\]'"), deployed(tmp_path, made):
        pass
