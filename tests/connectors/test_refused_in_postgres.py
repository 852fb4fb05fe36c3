"""Rows that a table of Postgres refuses: found within one transaction, whatever the constraint."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.postgres_shop import database
from tests.connectors.postgres_shop import shop as postgres_source
from tests.connectors.refusing import isolated
from tests.connectors.sink_shop import Shop, shop
from tests.deployed import Deployed
from tests.servers.postgres import PostgresServer
from umbel.connectors import Postgres, sinks
from umbel.connectors.postgres.sink import TableWriter
from umbel.errors import Transient, UmbelError


def writer_of(server: PostgresServer, *statements: str) -> Any:
    """Return a writer to a table with the columns `id`, `name` and `parent`."""
    from umbel.types.dtypes import Int, Optional, Str
    from umbel.types.schema import Schema

    name = database(server)
    server.run(*statements, database=name)
    schema = Schema((("id", Int()),), (("name", Str()), ("parent", Optional(Int()))), "at")
    connector = postgres_source(server, name).table("t")
    options = sinks.WriteOptions(id="x", dataset="T", schema=schema, renames={})
    writer = TableWriter(connector._server, "t", options)
    writer.position()
    return writer, lambda: server.run("SELECT id, name, parent FROM t ORDER BY id", database=name)


def change(key: int, name: str | None, parent: int | None = None) -> sinks.RowChange:
    row = {"id": key, "name": name, "parent": parent, "at": "2026-03-01T00:00:00Z"}
    gone = {"id": key, "name": "", "parent": None, "at": "2026-03-01T00:00:00Z"}
    return sinks.RowChange({"id": key}, gone if name is None else None, None if name is None else row, 0)


def refused_keys(writer: Any, *changes: sinks.RowChange, batch: int = 1) -> list[tuple[int, str]]:
    """Write changes; return the keys that were refused and the reasons."""
    return [
        (each.change.key["id"], each.error.message)
        for each in isolated(writer, changes, batch).refused
        if each.change.key
    ]


TABLE = "CREATE TABLE t(id int PRIMARY KEY, name varchar(20){name}, parent int{parent}, at timestamptz)"


def test_values_that_move_between_rows_are_accepted_beside_a_refused_row(postgres_server: PostgresServer) -> None:
    table = TABLE.format(name=" UNIQUE DEFERRABLE INITIALLY DEFERRED", parent="")
    writer, rows = writer_of(postgres_server, table)
    writer.write([change(n, name) for n, name in ((1, "a"), (2, "b"), (3, "c"))], sinks.SinkPosition(0))
    ((key, reason),) = refused_keys(writer, change(1, "b"), change(3, "x" * 50), change(2, "a"))
    assert (key, rows()) == (3, [(1, "b", None), (2, "a", None), (3, "c", None)])
    assert "too long" in reason
    ((key, reason),) = refused_keys(writer, change(4, "d"), change(5, "a"), change(6, "e"), batch=2)
    assert (key, [row[0] for row in rows()]) == (5, [1, 2, 3, 4, 6])
    assert "duplicate key" in reason
    assert writer.position() == sinks.SinkPosition(2)


def test_rows_and_deletions_wait_for_those_that_they_refer_to(postgres_server: PostgresServer) -> None:
    writer, rows = writer_of(postgres_server, TABLE.format(name=" CHECK (name <> 'bad')", parent=" REFERENCES t"))
    refused = refused_keys(writer, change(1, "a", 4), change(2, "bad"), change(3, "c", 2), change(4, "d"))
    assert [key for key, _ in refused] == [2, 3]  # 3 refers to a refused row
    assert rows() == [(1, "a", 4), (4, "d", None)]
    refused = refused_keys(writer, change(4, None), change(5, "e"), batch=2)
    assert ([key for key, _ in refused], "still referenced" in refused[0][1]) == ([4], True)
    assert [row[0] for row in rows()] == [1, 4, 5]


@pytest.mark.parametrize(
    "statement", ["DROP TABLE t", "ALTER TABLE t DROP COLUMN name", "ALTER TABLE t DROP CONSTRAINT t_pkey"]
)
def test_a_table_that_is_wrong_itself_refuses_no_row(postgres_server: PostgresServer, statement: str) -> None:
    writer, _ = writer_of(postgres_server, TABLE.format(name="", parent=""))
    postgres_server.run(statement, database=writer._server.database)
    with pytest.raises(UmbelError) as caught:
        writer.write([change(1, "a")], sinks.SinkPosition(1))
    assert not isinstance(caught.value, sinks.RowsRefused)


TRIGGER = """CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'not today' USING ERRCODE = 'MY001'; END$$"""


@pytest.mark.parametrize(
    ("statements", "remedy"),
    [
        (["ALTER TABLE t DROP CONSTRAINT t_pkey"], 'ALTER TABLE "t" ADD UNIQUE ("id")'),
        (
            ["ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id) DEFERRABLE"],
            "a constraint that is not deferrable",
        ),
        (["ALTER TABLE t DROP name, ADD name text GENERATED ALWAYS AS ('x') STORED"], "columns, triggers and rules"),
        ([TRIGGER, "CREATE TRIGGER t BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION no()"], "triggers and rules"),
    ],
)
def test_a_table_that_is_changed_in_the_middle_is_reported_with_a_remedy(
    postgres_server: PostgresServer, statements: list[str], remedy: str
) -> None:
    writer, rows = writer_of(postgres_server, TABLE.format(name="", parent=""))
    writer.write([change(1, "a")], sinks.SinkPosition(0))
    postgres_server.run(*statements, database=writer._server.database)
    with pytest.raises(UmbelError) as caught:
        writer.write([change(2, "b")], sinks.SinkPosition(1))
    assert not isinstance(caught.value, sinks.RowsRefused)
    assert remedy in str(caught.value.hint)
    assert 'table "t"' in caught.value.message
    assert [row[0] for row in rows()] == [1]


def test_a_policy_is_reported_with_a_remedy(postgres_server: PostgresServer) -> None:
    writer, _ = writer_of(
        postgres_server,
        TABLE.format(name="", parent=""),
        "DROP ROLE IF EXISTS limited",
        "CREATE ROLE limited LOGIN PASSWORD 'new'",
        "GRANT ALL ON SCHEMA public TO limited",
        "GRANT ALL ON t TO limited",
    )
    limited = TableWriter(replace(writer._server, user="limited", password="new"), "t", writer._options)
    postgres_server.run("ALTER TABLE umbel_sinks OWNER TO limited", database=writer._server.database)
    limited.position()
    statements = "ALTER TABLE t ENABLE ROW LEVEL SECURITY", "CREATE POLICY few ON t USING (id < 10)"
    postgres_server.run(*statements, database=writer._server.database)
    limited.write([change(1, "a")], sinks.SinkPosition(0))
    with pytest.raises(UmbelError) as caught:
        limited.write([change(11, "b")], sinks.SinkPosition(1))
    assert "ALTER ROLE limited BYPASSRLS" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("DROP TABLE large", "there is no table .*large"),
        ("ALTER TABLE large DROP COLUMN amount", "has no column 'amount'"),
    ],
)
def test_a_table_that_cannot_be_written_to_is_refused_by_the_commit(
    postgres_server: PostgresServer, tmp_path: Path, statement: str, reason: str
) -> None:
    name = database(postgres_server)
    postgres_server.run(
        'CREATE TABLE large("user" bigint, amount float8, at timestamptz)',
        'CREATE TABLE norse("user" bigint PRIMARY KEY, city text, at timestamptz)',
        statement,
        database=name,
    )
    connectors = [postgres_source(postgres_server, name).table(each) for each in ("large", "norse")]
    with contextlib.closing(Deployed(tmp_path / "umbel")) as made:
        with pytest.raises(UmbelError, match=reason):
            made.commit(shop(*connectors))
        assert made.deployment.catalog.latest() == 0
        down = Postgres(name="p", host="127.0.0.1", port=1, db_name="d", username="u", password="p")
        made.commit(shop(down.table("large"), down.table("norse")))


def test_a_table_that_is_made_anew_is_reported_once(postgres_server: PostgresServer, tmp_path: Path) -> None:
    name, large = database(postgres_server), 'CREATE TABLE large("user" bigint, amount float8, at timestamptz)'
    norse = 'CREATE TABLE norse("user" bigint PRIMARY KEY, city text, at timestamptz)'
    postgres_server.run(large, norse, database=name)
    connectors = [postgres_source(postgres_server, name).table(each) for each in ("large", "norse")]
    with contextlib.closing(Shop(tmp_path, *connectors)) as made:

        def events() -> list[str]:
            return [each.text for each in made.deployed.deployment.catalog.events() if "made anew" in each.text]

        made.sell(20)
        made.deliver()
        made.sell(30)
        postgres_server.run("DROP TABLE large", large, database=name)
        with pytest.raises(Transient, match="made anew"):
            made.deliver()
        made.deliver()
        made.delivery("Large").step()
        (text,) = events()
        assert "another version" in text
        assert postgres_server.run("SELECT amount FROM large", database=name) == [(30.0,)]
