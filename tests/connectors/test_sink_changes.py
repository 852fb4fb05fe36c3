"""Sinks whose definition or destination changes while a deployment lives."""

from __future__ import annotations

import base64
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.connectors.postgres_shop import database
from tests.connectors.postgres_shop import shop as postgres_source
from tests.connectors.sink_shop import Endpoint, Shop, shop
from tests.connectors.sink_tables import Tables, deliver, events
from tests.deployed import Deployed, wait_until
from tests.servers.postgres import PostgresServer
from umbel.api.dataset import redefined
from umbel.connectors import HTTP, Kafka, Snowflake, http_sink, sink
from umbel.connectors import sinks as sinks_of
from umbel.connectors.postgres.sink import TableWriter
from umbel.errors import UmbelError
from umbel.runtime import deliveries
from umbel.runtime.deliveries import Deliveries
from umbel.runtime.erasures import erase
from umbel.runtime.recovery.backup import backup
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore
from umbel.types.dtypes import Bytes, Int, List, Optional
from umbel.types.schema import Schema


def test_another_login_sends_nothing_again(tables: Tables, made: Shop) -> None:
    made.sell(20)
    deliver(made)
    tables.run("DROP ROLE IF EXISTS second_writer", "CREATE ROLE second_writer SUPERUSER LOGIN PASSWORD 'new'")
    made.deployed.commit(shop(*tables.connectors(username="second_writer", password="new")))
    made.sell(30)
    deliver(made)
    assert tables.amounts() == [20, 30]


def test_other_options_of_requests_send_nothing_again(tmp_path: Path) -> None:
    endpoint = Endpoint()
    with endpoint.running() as address:
        first, second = HTTP(name="out", host=address, healthz=""), HTTP(name="out", host=address, healthz="/health")
        with contextlib.closing(Shop(tmp_path, first.path("/large"), first.path("/norse"), cdc="debezium")) as made:
            made.sell(20)
            deliver(made)
            paths = (second.path(f"/{name}", limit=1, headers={"X-Shop": "2"}) for name in ("large", "norse"))
            made.deployed.commit(shop(*paths, cdc="debezium"))
            made.sell(30, 40)
            deliver(made)
    assert sorted(row["after"]["amount"] for row in endpoint.rows("/large")) == [20, 30, 40]


def test_the_key_of_a_request_tells_parts_of_other_lengths_apart(tmp_path: Path) -> None:
    endpoint = Endpoint(lambda: (None, 400))  # it has the rows, and the worker does not know
    with endpoint.running() as address:
        source = HTTP(name="out", host=address, healthz="")
        paths = (source.path("/large", limit=3), source.path("/norse"))
        with contextlib.closing(Shop(tmp_path, *paths, cdc="debezium")) as made:
            made.sell(20, 30, 40)
            with pytest.raises(UmbelError):
                deliver(made)
            endpoint.fails = lambda: (None, None)
            made.deployed.commit(shop(source.path("/large", limit=2), source.path("/norse"), cdc="debezium"))
            made.drain()
            deliver(made)
    assert endpoint.conflicts == []
    assert {row["after"]["amount"] for row in endpoint.rows("/large")} == {20, 30, 40}


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_answers_need_not_end(tmp_path: Path, pause: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sink, "LONGEST_ANSWER", 0.5)
    endpoint = Endpoint(pause=pause)
    with endpoint.running() as address:
        source = HTTP(name="out", host=address, healthz="/health")
        with contextlib.closing(Shop(tmp_path, source.path("/large"), source.path("/norse"), cdc="debezium")) as made:
            made.sell(20)
            delivering = threading.Thread(target=deliver, args=(made,), daemon=True)
            delivering.start()
            delivering.join(20)
            assert not delivering.is_alive()
    assert [row["after"]["amount"] for row in endpoint.rows("/large")] == [20]


@pytest.mark.parametrize("pause", [None, 30.0])
def test_an_answer_that_is_cut_has_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause: float | None
) -> None:
    """By a closed connection, or by one that says nothing more."""
    monkeypatch.setattr(http_sink, "TIMEOUT", 0.5)
    endpoint = Endpoint(pause=pause, is_cut=True)
    with endpoint.running() as address:
        source = HTTP(name="out", host=address, healthz="/health")
        with contextlib.closing(Shop(tmp_path, source.path("/large"), source.path("/norse"), cdc="debezium")) as made:
            made.sell(20)
            deliver(made)
            made.sell(30)
            deliver(made)
    assert [row["after"]["amount"] for _, _, rows in endpoint.requests for row in rows] == [20, 30]


def test_other_options_take_effect_without_a_restart(tables: Tables, tmp_path: Path) -> None:
    large, norse = tables.connectors()
    with (
        contextlib.closing(Shop(tmp_path, large, norse, every="1h")) as made,
        Deliveries(made.deployed.deployment),
    ):
        made.sell(20)
        made.drain()
        wait_until(lambda: tables.amounts() == [20], tables.amounts, 30)
        made.deployed.commit(shop(large, norse, renames={"at": "later"}))
        made.sell(30)
        made.drain()
        wait_until(lambda: tables.amounts() == [20, 30], tables.amounts, 30)
    assert tables.run("SELECT amount, at IS NULL, later IS NULL FROM large ORDER BY amount") == [
        (20, False, True),
        (30, True, False),
    ]


def test_a_sink_that_is_taken_away_and_added_again_gets_the_rest(tables: Tables, made: Shop) -> None:
    made.sell(20)
    deliver(made)
    sale, user, large, norse = shop(*tables.connectors())
    made.deployed.commit([sale, user, redefined(large, sinks=()), redefined(norse, sinks=())])
    made.sell(30)
    deliver(made)
    assert tables.amounts() == [20]
    made.deployed.commit([sale, user, large, norse])
    made.sell(40)
    deliver(made)
    assert tables.amounts() == [20, 30, 40]


def test_a_writer_that_exits_is_tried_again(tables: Tables, made: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose text cannot be made ended the thread, without a word in the status."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise MemoryError

    write, close, errors = TableWriter.write, TableWriter.close, [SystemExit("not today"), Mute()]

    def exiting(*arguments: Any) -> None:
        if errors:
            raise errors.pop()
        write(*arguments)

    def failing(writer: TableWriter) -> None:
        close(writer)
        raise OSError("closed before")

    monkeypatch.setattr(TableWriter, "write", exiting)
    monkeypatch.setattr(TableWriter, "close", failing)
    with Deliveries(made.deployed.deployment):
        made.sell(20)
        made.drain()
        wait_until(lambda: tables.amounts() == [20], tables.amounts, 30)
    assert "sink of 'Large': SystemExit: not today" in events(made)
    assert "sink of 'Large': Mute: its text cannot be made: MemoryError" in events(made)
    assert "closed before" not in events(made)  # it hid the reason


def test_each_reason_is_reported(tables: Tables, made: Shop) -> None:
    tables.run("ALTER TABLE large RENAME amount TO price")
    with Deliveries(made.deployed.deployment):
        made.sell(20)
        made.drain()
        wait_until(lambda: "has no column 'amount'" in events(made), lambda: events(made), 30)
        tables.run("ALTER TABLE large RENAME price TO amount", "ALTER TABLE large ADD CHECK (amount > 50)")
        wait_until(lambda: "violates check constraint" in events(made), lambda: events(made), 30)


def test_writers_that_start_at_once_make_the_table_of_positions_once(tables: Tables, made: Shop) -> None:
    made.sell(20)
    made.drain()
    for _ in range(5):
        tables.run("DROP TABLE IF EXISTS umbel_sinks")
        with ThreadPoolExecutor(8) as pool:
            assert len(list(pool.map(lambda _: made.delivery("Large")._open(), range(8)))) == 8


def test_a_value_of_a_unique_column_moves_to_another_row(tables: Tables, made: Shop) -> None:
    made.move(1, "Oslo")
    deliver(made)
    made.move(1, None)
    made.move(2, "Oslo")
    deliver(made)
    assert tables.run('SELECT "user", city FROM norse') == [(2, "Oslo")]


def test_a_deferred_constraint_lets_values_change_places(tables: Tables, made: Shop) -> None:
    tables.run("ALTER TABLE norse DROP CONSTRAINT norse_city_key, ADD UNIQUE (city) DEFERRABLE INITIALLY DEFERRED")
    for one, two in (("Oslo", "Bergen"), ("Bergen", "Oslo")):
        made.move(1, one)
        made.move(2, two)
        deliver(made)
    assert tables.run('SELECT "user", city FROM norse ORDER BY 1') == [(1, "Bergen"), (2, "Oslo")]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            "ALTER TABLE norse ADD CHECK (city <> 'Oslo')",
            r"check constraint.*Failing row contains \(1, Oslo, .*SQLSTATE 23514",
        ),
        (
            "ALTER TABLE norse ADD population int NOT NULL",
            r"null value in column .population.*Failing row contains \(1, Oslo, ",
        ),
        (
            "ALTER TABLE norse ALTER city TYPE int USING 0",
            r'table "norse": invalid input syntax for type integer: "Oslo"',
        ),
        ("ALTER TABLE norse ALTER city TYPE varchar(3)", r"value too long for type character varying\(3\)"),
        ("INSERT INTO norse VALUES (7, 'Oslo')", r"unique constraint.*Key \(city\)=\(Oslo\) already exists"),
    ],
)
def test_a_row_that_the_table_refuses_is_reported(tables: Tables, made: Shop, change: str, reason: str) -> None:
    tables.run(change)
    made.move(1, "Oslo")
    with pytest.raises(UmbelError, match=reason) as caught:
        deliver(made)
    assert "let the table accept it" in str(caught.value)
    made.move(1, None)
    deliver(made)  # as the difference of both batches: nothing
    assert tables.run('SELECT * FROM norse WHERE "user" = 1') == []


def test_a_writer_without_permission_gets_the_grant_to_make(tables: Tables, tmp_path: Path) -> None:
    tables.run(
        "DROP ROLE IF EXISTS reader_only",
        "CREATE ROLE reader_only LOGIN PASSWORD 'r'",
        "CREATE TABLE umbel_sinks(sink text PRIMARY KEY, dataset text, epoch bigint, batch bigint, rows bigint,"
        " written_at timestamptz)",
        "GRANT SELECT ON large, norse TO reader_only",
        "GRANT SELECT, INSERT, UPDATE ON umbel_sinks TO reader_only",
    )
    with contextlib.closing(Shop(tmp_path, *tables.connectors(username="reader_only", password="r"))) as made:
        made.sell(20)
        with pytest.raises(UmbelError, match=r'GRANT SELECT, INSERT, UPDATE, DELETE ON "large" TO reader_only'):
            deliver(made)


def from_backup(made: Shop, folder: Path) -> Shop:
    """Return a shop whose deployment is restored from the newest backup."""
    restore(Repository.at(str(folder)), made.folder.with_name("restored"))
    found: Shop = object.__new__(Shop)
    found.__dict__ |= made.__dict__ | {"deployed": Deployed(made.folder.with_name("restored")), "_deliveries": {}}
    return found


@pytest.mark.parametrize("kind", ["postgres", "http"])
def test_a_restored_deployment_sends_what_comes_after_the_backup(
    postgres_server: PostgresServer, tmp_path: Path, kind: str
) -> None:
    tables, endpoint = Tables(postgres_server), Endpoint()
    with endpoint.running() as address:
        source = HTTP(name="out", host=address, healthz="")
        connectors = tables.connectors() if kind == "postgres" else (source.path("/large"), source.path("/norse"))
        how = {} if kind == "postgres" else {"cdc": "debezium"}
        with contextlib.closing(Shop(tmp_path, *connectors, **how)) as made:
            made.sell(20)
            deliver(made)
            backup(made.deployed.deployment, Repository.at(str(tmp_path / "backups")))
            for amount in (30, 40, 50):
                made.sell(amount)
                deliver(made)
            with contextlib.closing(from_backup(made, tmp_path / "backups")) as restored:
                for amount in (60, 70):
                    restored.sell(amount)
                    deliver(restored)
    sent = tables.amounts() if kind == "postgres" else [row["after"]["amount"] for row in endpoint.rows("/large")]
    assert sorted(sent) == [20, 30, 40, 50, 60, 70]


def test_two_sinks_to_one_destination_are_refused(tables: Tables, tmp_path: Path) -> None:
    sale, user, large, norse = shop(*tables.connectors())
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    twice = sink(tables.connectors(password="other")[0], since=noon)(large)
    with pytest.raises(UmbelError, match="dataset 'Large' has two sinks to one destination"):
        Shop(tmp_path, *tables.connectors()).deployed.commit([sale, user, twice, norse])


def test_a_destination_is_identified_by_its_place() -> None:
    out: dict[str, Any] = {"name": "out", "host": "https://a", "healthz": ""}
    kafka: dict[str, Any] = {"name": "k", "bootstrap_servers": "a:1"}
    snow: dict[str, Any] = {"name": "s", "account": "a", "db_name": "d", "schema": "s", "username": "u"}
    plain = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "PLAIN"}
    safe = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_password": "p"}
    one, two = ({"password": each, "warehouse": each, "role": each} for each in "12")
    for same, other in (
        (HTTP(**out).path("/x"), HTTP(**out | {"healthz": "/h"}).path("/x", limit=3, headers={"a": "b"})),
        (Kafka(**kafka, **plain).topic("t"), Kafka(**kafka, **safe).topic("t")),
        (Snowflake(**snow, **one).table("t"), Snowflake(**snow, **two).table("t")),
    ):
        assert same.destination == other.destination
    for one_place, another in (
        (HTTP(**out).path("/x"), HTTP(**out | {"host": "https://b"}).path("/x")),
        (HTTP(**out).path("/x"), HTTP(**out).path("/y")),
        (Kafka(**kafka, **plain).topic("t"), Kafka(**kafka, **plain).topic("u")),
        (Snowflake(**snow, **one).table("t"), Snowflake(**snow | {"schema": "t"}, **one).table("t")),
    ):
        assert one_place.destination != another.destination


@pytest.mark.parametrize("kind", ["postgres", "http"])
def test_keys_that_are_erased_within_a_batch_skip_no_other_row(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(deliveries, "AT_ONCE", 10)
    tables, endpoint = Tables(postgres_server), Endpoint()
    with endpoint.running() as address:
        source = HTTP(name="out", host=address, healthz="")
        large, norse = tables.connectors() if kind == "postgres" else (source.path("/l"), source.path("/n", limit=4))
        how = {} if kind == "postgres" else {"cdc": "debezium"}
        with contextlib.closing(Shop(tmp_path, large, norse, **how)) as made:
            for user in range(30):
                made.move(user, f"City {user}")
            made.drain()
            delivery = made.delivery("Norse")
            writer, done = delivery._open(), list[Any]()
            with monkeypatch.context() as patch:
                if kind == "postgres":
                    write = writer.write
                    patch.setattr(writer, "write", lambda *args: done.append(write(*args)) if not done else crash())
                else:  # within the second transaction
                    post = writer._post
                    patch.setattr(writer, "_post", lambda *args: done.append(post(*args)) if len(done) < 4 else crash())
                with pytest.raises(KeyboardInterrupt):
                    delivery.step()
            erase(made.deployed.deployment, "main", "Norse", {"user": pl.Series([0, 1, 2, 11, 12])})
            made.move(100, "Oslo")
            made.drain()
            for _ in range(2):  # what was begun, and the next batch
                made.delivery("Norse").step()
            users = {100, *range(30)}
            if kind == "postgres":
                found = {row[0] for row in tables.run('SELECT "user" FROM norse')}
            else:
                found = {row["key"]["user"] for row in endpoint.rows("/n")}
            assert users - found <= {11, 12}  # the others were sent, or are not erased


def crash() -> None:
    raise KeyboardInterrupt


def test_bytes_arrive_in_arrays_too(postgres_server: PostgresServer) -> None:
    """As bytes in a bytea[]; in a column of JSON, which has none, as their base64 text."""
    name = database(postgres_server)
    columns = "id int PRIMARY KEY, one bytea, many bytea[], deep bytea[], plain jsonb, at timestamptz"
    postgres_server.run(f"CREATE TABLE t({columns})", database=name)
    many = List(Bytes())
    fields = {"one": Bytes(), "many": List(Optional(Bytes())), "deep": Optional(List(many)), "plain": many}
    schema = Schema((("id", Int()),), tuple(fields.items()), "at")
    options = sinks_of.WriteOptions(id="x", dataset="T", schema=schema, renames={})
    writer = TableWriter(postgres_source(postgres_server, name).table("t")._server, "t", options)
    writer.position()
    text = base64.b64encode(b"\0\xff").decode()
    row = {
        "id": 1,
        "one": text,
        "many": [text, None],
        "deep": [[text], [text]],
        "plain": [text],
        "at": "2026-03-01T00:00:00Z",
    }
    writer.write([sinks_of.RowChange({"id": 1}, None, row, 0)], sinks_of.SinkPosition(1))
    found = postgres_server.run("SELECT one, many, deep, plain FROM t", database=name)
    assert found == [(b"\0\xff", [b"\0\xff", None], [[b"\0\xff"], [b"\0\xff"]], [text])]


def test_a_retraction_deletes_one_row_of_a_partitioned_table(postgres_server: PostgresServer) -> None:
    """Rows of its partitions may be at the same place in each."""
    name = database(postgres_server)
    parts = (f"CREATE TABLE t{n} PARTITION OF t FOR VALUES IN ({n})" for n in range(3))
    postgres_server.run("CREATE TABLE t(n bigint, at timestamptz) PARTITION BY LIST (n)", *parts, database=name)
    options = sinks_of.WriteOptions(id="x", dataset="T", schema=Schema((), (("n", Int()),), "at"), renames={})
    writer = TableWriter(postgres_source(postgres_server, name).table("t")._server, "t", options)
    writer.position()
    rows = [{"n": n, "at": "2026-03-01T00:00:00Z"} for n in (0, 1, 2, 1)]
    writer.write([sinks_of.RowChange(None, None, each, 0) for each in rows], sinks_of.SinkPosition(1))
    writer.write([sinks_of.RowChange(None, rows[1], None, 0)], sinks_of.SinkPosition(2))
    assert postgres_server.run("SELECT n FROM t ORDER BY n", database=name) == [(0,), (1,), (2,)]
