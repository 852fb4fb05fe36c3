"""HTTP, Postgres, Delta and Snowflake as sinks: their content, also after crashes at any point and kills of the worker."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.connectors import sink_shop
from tests.connectors.postgres_shop import database
from tests.connectors.postgres_shop import shop as postgres_source
from tests.connectors.sink_shop import Endpoint, Shop, Worker, work
from tests.deployed import wait_until
from tests.docs.test_snippets import ROOT
from tests.s3server import S3Server
from tests.servers.postgres import PostgresServer
from tests.servers.snowflake import PASSWORD, USER, FakeSnowflake, running
from umbel.connectors import HTTP, S3, Snowflake
from umbel.connectors.snowflake.server import ADDRESS
from umbel.errors import Transient, UmbelError
from umbel.runtime import deliveries

NUMBERS = itertools.count()


class Target:
    """A destination: the connectors, the options, and the content."""

    def __init__(self, connectors: tuple[Any, Any], how: dict[str, Any], read: Callable[[], Any]) -> None:
        self.connectors, self.how, self.read = connectors, how, read
        self.environment: dict[str, str] = {}

    def shop(self, folder: Path) -> Shop:
        return Shop(folder, *self.connectors, **self.how)

    def matches(self, made: Shop) -> bool:
        with contextlib.suppress(Exception):
            return self.read() == (sorted(made.amounts), made.cities)
        return False


def http(endpoint: Endpoint, address: str, **options: Any) -> Target:
    source = HTTP(name="out", host=address, healthz="/health")

    def read() -> Any:
        assert endpoint.conflicts == []
        large, cities = endpoint.rows("/large"), dict[int, str]()
        for row in sorted(endpoint.rows("/norse"), key=lambda row: row["source"]["ts_us"]):
            cities.pop(row["key"]["user"], None)
            if row["after"] is not None:
                cities[row["key"]["user"]] = row["after"]["city"]
        return sorted(row["after"]["amount"] for row in large), cities

    return Target((source.path("/large", **options), source.path("/norse", **options)), {"cdc": "debezium"}, read)


def postgres(server: PostgresServer) -> Target:
    name = database(server)
    server.run(
        'CREATE TABLE large("user" bigint, amount float8 NOT NULL, at timestamptz NOT NULL)',
        'CREATE TABLE "Norse 100%"("user" bigint PRIMARY KEY, city text, at timestamptz, seen int DEFAULT 7)',
        database=name,
    )
    source = postgres_source(server, name)

    def read() -> Any:
        amounts = [row[0] for row in server.run("SELECT amount FROM large ORDER BY amount", database=name)]
        return amounts, dict(server.run('SELECT "user", city FROM "Norse 100%"', database=name))

    return Target((source.table("large"), source.table("Norse 100%")), {}, read)


def table(address: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rows of a Delta table, none if it does not exist yet."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    from umbel.connectors.delta_tables import options_of

    with contextlib.suppress(TableNotFoundError):
        options = {**options_of(environment), **environment}
        return list(DeltaTable(address, storage_options=options).to_pyarrow_table().to_pylist())
    return []


def delta(server: S3Server) -> Target:
    bucket = f"sinks{next(NUMBERS)}"
    server.bucket(bucket)
    source = S3(name="lake")
    connectors = tuple(source.bucket(bucket, prefix=f"tables/{name}", format="delta") for name in ("large", "norse"))

    def read() -> Any:
        large, norse = (table(f"s3://{bucket}/tables/{name}", server.environment) for name in ("large", "norse"))
        assert {row["_weight"] for row in large} <= {1}
        return sorted(row["amount"] for row in large), {row["user"]: row["city"] for row in norse}

    found = Target((connectors[0], connectors[1]), {"how": "incremental"}, read)
    found.environment = server.environment
    return found


def snowflake(snow: FakeSnowflake) -> Target:
    at = {"AT": "TIMESTAMP_LTZ(9)"}
    snow.create("LARGE", {"USER": "NUMBER(38,0)", "AMOUNT": "FLOAT", **at})
    snow.create('Norse "100%', {"USER": "NUMBER(38,0)", "CITY": "VARCHAR(100)", **at}, ["USER"])
    login = {"username": USER, "password": PASSWORD, "role": "WRITER"}
    source = Snowflake(name="shop", account="org-acc", db_name="SHOP", schema="PUBLIC", warehouse="W", **login)

    def read() -> Any:
        amounts = [row[0] for row in snow.run("SELECT AMOUNT FROM LARGE ORDER BY AMOUNT")]
        rows = snow.run('SELECT "USER", CITY FROM "Norse ""100%"')
        assert len({row[0] for row in rows}) == len(rows)
        return amounts, dict(rows)

    made = Target((source.table("large"), source.table('"Norse ""100%"')), {"how": "incremental"}, read)
    made.environment = {ADDRESS: snow.address}
    return made


@pytest.fixture(params=["http", "postgres", "delta", "snowflake"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    with contextlib.ExitStack() as stack:
        if request.param == "http":
            endpoint = Endpoint()
            made = http(endpoint, stack.enter_context(endpoint.running()), limit=7)
        elif request.param == "postgres":
            made = postgres(request.getfixturevalue("postgres_server"))
        elif request.param == "snowflake":
            made = snowflake(stack.enter_context(running()))
        else:
            made = delta(request.getfixturevalue("s3_server"))
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def made(target: Target, tmp_path: Path) -> Iterator[Shop]:
    shop = target.shop(tmp_path)
    yield shop
    shop.close()


def test_a_destination_has_the_rows(target: Target, made: Shop) -> None:
    made.sell(5, 20, 30)
    made.move(1, "Oslo")
    made.move(2, "Bergen")
    made.deliver()
    assert target.read() == ([20, 30], {1: "Oslo", 2: "Bergen"})
    made.sell(40, 20)
    made.move(1, "Bodø")
    made.move(2, None)
    made.move(3, "Rome")
    made.deliver()
    made.deliver()
    assert target.read() == ([20, 20, 30, 40], {1: "Bodø"})


def crash(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("point", ["before it is written", "after it is written"])
@pytest.mark.parametrize(
    ("at_once", "crashes"), [(10, 2), *(pytest.param(each, 4, marks=pytest.mark.nightly) for each in (10, 20_000))]
)
def test_a_crash_leaves_nothing_out_and_writes_nothing_twice(
    target: Target, made: Shop, point: str, at_once: int, crashes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "AT_ONCE", at_once)
    for done in range(crashes):
        made.sell(*[20.0 + n for n in range(25)])
        made.move(1, f"City {done}")
        made.drain()
        for name in ("Large", "Norse"):
            delivery = made.delivery(name)
            writer = delivery._open()
            with pytest.MonkeyPatch.context() as patch:
                if point.startswith("before"):
                    patch.setattr(writer, "write", crash)
                else:
                    write = writer.write

                    def then_crash(changes: Any, position: Any, write: Any = write) -> None:
                        write(changes, position)
                        raise KeyboardInterrupt

                    patch.setattr(writer, "write", then_crash)
                with pytest.raises(KeyboardInterrupt):
                    delivery.step()
    made.sell(1000)
    made.deliver()
    for _ in range(3):
        made.deliver()
    assert target.matches(made), target.read()


@pytest.mark.parametrize(
    "target", ["postgres", "delta", "snowflake"], indirect=True
)  # a server of HTTP knows only keys of requests
def test_a_former_writer_cannot_write(target: Target, made: Shop) -> None:
    made.sell(20)
    made.drain()
    former, later = made.delivery("Large"), made.delivery("Large")
    former._open()
    later.step()
    with pytest.raises(Transient, match="taken over"):
        former.step()
    made.sell(30)
    made.drain()
    later.step()
    assert target.read()[0] == [20, 30]


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.nightly)])
def test_kills_leave_nothing_out_and_write_nothing_twice(target: Target, made: Shop, kills: int) -> None:
    chance = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")
    worker = Worker(made, target.environment)
    try:
        for _ in range(kills):
            worker.mind()
            for _ in range(3):
                work(made, chance)
                time.sleep(chance.uniform(0.1, 1.0))
            worker.kill()
        worker.mind()
        wait_until(lambda: target.matches(made), lambda: (target.read(), sorted(made.amounts), made.cities), 60)
    finally:
        worker.kill()


# ---- HTTP


@pytest.mark.parametrize("times", [15, pytest.param(30, marks=pytest.mark.nightly)])
def test_a_server_that_fails_at_random_has_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    from umbel.connectors import http_sink

    monkeypatch.setattr(http_sink, "FIRST_WAIT", 0.001)
    chance = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")

    def fails() -> tuple[int | None, int | None]:
        failure = chance.choice([429, 500, 503, -1])
        return (failure if chance.random() < 0.3 else None), (failure if chance.random() < 0.3 else None)

    endpoint = Endpoint(fails)
    with endpoint.running() as address, contextlib.closing(http(endpoint, address, limit=5).shop(tmp_path)) as made:
        target = http(endpoint, address, limit=5)
        for _ in range(times):
            work(made, chance)
            with contextlib.suppress(Transient):
                made.deliver()
        endpoint.fails = lambda: (None, None)
        made.deliver()  # what was begun
        made.deliver()
        assert target.matches(made)
        keys = [(path, key) for path, key, _ in endpoint.requests]
        assert len(keys) > len(set(keys))  # some were sent again
        assert max(len(rows) for _, _, rows in endpoint.requests) == 5


def test_a_refusal_is_not_sent_again_at_once(tmp_path: Path) -> None:
    endpoint = Endpoint(lambda: (400, None))
    with endpoint.running() as address, contextlib.closing(http(endpoint, address).shop(tmp_path)) as made:
        made.sell(20)
        with pytest.raises(UmbelError, match=r"POST /large: status 400"):
            made.deliver()


# ---- Postgres


def test_types_are_cast_by_the_server(postgres_server: PostgresServer) -> None:
    from datetime import UTC, datetime

    from umbel.connectors.postgres.sink import TableWriter
    from umbel.connectors.sinks import RowChange, SinkPosition, WriteOptions
    from umbel.query.encode import to_json
    from umbel.types.dtypes import Bytes, Date, Decimal, Dict, Float, Int, List, Optional, Str
    from umbel.types.schema import Schema

    name = database(postgres_server)
    postgres_server.run(
        "CREATE TABLE t(id int PRIMARY KEY, b bytea, n numeric(28, 2), l text[], d jsonb, f float8,"
        " day date, o text, at timestamptz)",
        database=name,
    )
    values = {
        "b": Optional(Bytes()), "n": Decimal(2), "l": List(Str()), "d": Dict(Int()), "f": Float(),
        "day": Date(), "o": Optional(Str()),
    }  # fmt: skip
    schema = Schema((("id", Int()),), tuple(values.items()), "at")
    at = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
    rows: dict[str, list[Any]] = {
        "id": [1, 2], "b": [b"\x00\xff", None], "n": ["1.50", "-3.25"], "l": [["a", "ü\"'"], []], "d": [{"x": 1}, {}],
        "f": [float("nan"), 1e300], "day": ["2026-03-01", "1969-12-31"], "o": [None, "%s \\ '"], "at": [at, at],
    }  # fmt: skip
    stored = {each: schema.dtypes[each].convert(column).values for each, column in rows.items()}
    plain = to_json(stored, schema.dtypes)
    changes = [RowChange({"id": n + 1}, None, {each: column[n] for each, column in plain.items()}, 0) for n in range(2)]
    connector = postgres_source(postgres_server, name).table("t")
    writer = TableWriter(connector._server, "t", WriteOptions(id="x", dataset="T", schema=schema, renames={}))
    assert writer.position() == SinkPosition()
    writer.write(changes, SinkPosition(3, 0))
    assert writer.position() == SinkPosition(3, 0)
    found = postgres_server.run("SELECT b, n::text, l, d, f::text, day::text, o, at FROM t ORDER BY id", database=name)
    assert found == [
        (b"\x00\xff", "1.50", ["a", "ü\"'"], {"x": 1}, "NaN", "2026-03-01", None, at),
        (None, "-3.25", [], {}, "1e+300", "1969-12-31", "%s \\ '", at),
    ]


def test_a_table_without_a_column_or_a_constraint_is_refused(postgres_server: PostgresServer, tmp_path: Path) -> None:
    target = postgres(postgres_server)
    name = target.connectors[0].source.db_name
    with contextlib.closing(target.shop(tmp_path)) as made:
        postgres_server.run(
            "ALTER TABLE large DROP COLUMN amount",
            'ALTER TABLE "Norse 100%" DROP CONSTRAINT "Norse 100%_pkey"',
            database=name,
        )
        made.sell(20)
        made.move(1, "Oslo")
        made.drain()
        with pytest.raises(UmbelError, match="has no column 'amount'"):
            made.delivery("Large").step()
        with pytest.raises(UmbelError, match="no unique or exclusion constraint"):
            made.delivery("Norse").step()


def test_the_statements_of_the_page_are_enough(postgres_server: PostgresServer, tmp_path: Path) -> None:
    name, text = database(postgres_server), (ROOT / "docs" / "howto" / "sinks.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        postgres_server.run(*filter(str.strip, block.split(";\n")), database=name)
    source = postgres_source(postgres_server, name, username="umbel_writer", password="change-me")
    postgres_server.run('ALTER TABLE large_orders RENAME id TO "user"', database=name)
    postgres_server.run("ALTER TABLE large_orders ADD city text", database=name)  # of the shop's other dataset
    table, how = source.table("large_orders"), {"renames": {"at": "ordered_at"}}
    noon = datetime(2026, 3, 1, 0, 0, 2, tzinfo=UTC)
    with contextlib.closing(Shop(tmp_path, table, table, **how, since=noon, until=noon + timedelta(seconds=1))) as made:
        made.sell(11, 12, 13)
        made.drain()
        made.delivery("Large").step()
    found = postgres_server.run("SELECT amount, ordered_at FROM large_orders", database=name)
    assert found == [(12.0, noon)]


# ---- what is refused


def test_what_cannot_be_written_is_refused() -> None:
    s3, server = S3(name="lake"), HTTP(name="out", host="http://h", healthz="")
    for connector, how, reason in (
        (s3.bucket("b", path="t/%Y/*", format="delta"), {"how": "incremental"}, "one path"),
        (s3.bucket("b", prefix="t", format="json"), {"how": "incremental"}, "must be 'delta'"),
        (server.path("/x", limit=0), {"cdc": "debezium"}, "limit must be positive"),
        (postgres_source_of("id"), {}, "cursor cannot be set"),
    ):
        with pytest.raises(UmbelError, match=reason):
            sink_shop.sink(connector, **how)


def postgres_source_of(cursor: str) -> Any:
    from umbel.connectors import Postgres

    return Postgres(name="p", host="h", db_name="d", username="u", password="p").table("t", cursor)
