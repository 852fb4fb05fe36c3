"""Empty databases, with tables that are read in ranges when they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.connectors import mysql_shop, postgres_shop
from tests.servers.mysql import MySQLServer
from tests.servers.postgres import PostgresServer
from umbel.connectors import source
from umbel.connectors.mysql import cursor as mysql_cursor
from umbel.connectors.mysql import dividing
from umbel.connectors.postgres import cursor as postgres_cursor
from umbel.datasets import dataset

__owner__ = "shop@example.com"


@dataclass
class Database:
    """An empty database.

    Args:
        shop: the source.
        run: runs statements; returns the rows of the last one.
        connect: connects for a block.
        sequence: returns a subquery of numbers `i` from one to another.
        active: the query of the number of umbel's connections.
        instant: returns the expression of an instant, by that of a number of seconds.
    """

    shop: Any
    run: Callable[..., list[Any]]
    connect: Callable[[], Any]
    sequence: Callable[[int, int], str]
    active: str
    instant: Callable[[str], str]


@pytest.fixture(params=["postgres", "mysql"])
def database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setenv("UMBEL_FIRST_READ_CONNECTIONS", "2")
    monkeypatch.setattr(mysql_cursor, "LARGE", 100)
    monkeypatch.setattr(dividing, "RANGE_ROWS", 1000)
    monkeypatch.setattr(postgres_cursor, "LARGE", 100)
    monkeypatch.setattr(postgres_cursor, "RANGE_BYTES", 1 << 17)
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        name = postgres_shop.database(postgres)
        yield Database(
            postgres_shop.shop(postgres, name),
            lambda *each: postgres.run(*each, database=name),
            lambda: postgres.connect(name),
            lambda low, high: f"generate_series({low}, {high}) i",
            f"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'umbel' AND datname = '{name}'",
            lambda seconds: f"timestamp '2024-01-01' + ({seconds}) * interval '1 s'",
        )
        return
    mysql: MySQLServer = request.getfixturevalue("mysql_server")
    name = mysql_shop.database(mysql)
    yield Database(
        mysql_shop.shop(mysql, name),
        lambda *each: mysql.run(f"USE {name}", *each),
        lambda: mysql.connect(name),
        lambda low, high: f"(SELECT seq AS i FROM seq_{low}_to_{high}) _",
        "SELECT count(*) FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND COMMAND <> 'Daemon' "
        f"AND DB = '{name}'",
        lambda seconds: f"TIMESTAMPADD(SECOND, {seconds}, TIMESTAMP'2024-01-01 00:00:00')",
    )


def events(database: Database, cursor: str, disorder: str = "1h") -> Any:
    @source(database.shop.table("events", cursor), disorder=disorder, every="1s", cdc="append")
    @dataset
    class Events:
        n: int
        at: datetime

    return Events


def filled(database: Database, count: int, *, first: int = 1, value: str = "i") -> None:
    """Insert rows whose cursors grow, each with several rows; the column `number` has a value of its own."""
    database.run(
        f"""INSERT INTO events(n, at, moment, number, exact, word, day)
            SELECT i, {database.instant("i / 7")}, {database.instant("i / 7")}, {value}, i / 8.0,
            concat('w', lpad(concat(i), 9, '0')), CAST({database.instant("i * 20")} AS date)
            FROM {database.sequence(first, first + count - 1)}"""
    )


def made(database: Database, *indexes: str, key: str = "n bigint") -> None:
    text = "varchar(40) COLLATE utf8mb4_bin" if "MySQL" in type(database.shop).__name__ else 'text COLLATE "C"'
    database.run(
        f"""CREATE TABLE events({key}, at timestamp NOT NULL, moment timestamp NULL, number bigint, exact numeric(30, 3),
            word {text}, day date)"""
    )
    for each in indexes:
        database.run(f"CREATE INDEX {each}_index ON events ({each})")


def analyzed(database: Database) -> None:
    if "MySQL" in type(database.shop).__name__:
        database.run("ANALYZE TABLE events")


def low(reader: Any, snapshot: Any) -> Any:
    return reader.start(snapshot, [])


def reader_of(database: Database, folder: Path, cursor: str) -> Any:
    from umbel.definitions.arguments import ReadOptions

    options = ReadOptions(
        directory=folder,
        key="k",
        dataset="Events",
        cdc="append",
        every=10**6,
        disorder=0,
        columns=("n", "at"),
        keys=(),
        is_keyed=False,
    )
    return database.shop.table("events", cursor).reader_of(options)
