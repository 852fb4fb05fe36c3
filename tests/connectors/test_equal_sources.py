"""One pipeline fed from the same changes by a webhook, Kafka, Postgres, MySQL and files: the served values are equal."""

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from tests.connectors import mysql_shop, postgres_shop
from tests.connectors.shop_datasets import deployed, letters, until
from tests.servers.kafka import Broker
from tests.servers.mysql import MySQLServer
from tests.servers.postgres import PostgresServer
from umbel import Dataset, inputs, pipeline
from umbel.api.dataset import redefined
from umbel.connectors import Files, Kafka, Webhook, source
from umbel.datasets import Count, Sum, dataset, field
from umbel.dtypes import Continuous

__owner__ = "shop@example.com"
CITIES = ("Oslo", "Rome", "Çeşme", "")
USERS = range(40)
START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=3)
"""Within the disorder: a deletion takes effect when it is committed, which is now."""
LATER = datetime(9000, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def datasets(name: str, connector: Any, cdc: str, **options: str) -> list[Any]:
    """Return a dataset of users, one of those with high scores, and one of their cities."""

    @source(connector, disorder="14d", cdc=cdc, **options)
    @dataset(index=True)
    class Users:
        uid: int = field(key=True)
        city: str
        score: int
        at: datetime

    people = redefined(cast("Any", Users), name=f"Users{name}")

    @dataset(index=True)
    class Winners:
        uid: int = field(key=True)
        city: str
        score: int
        at: datetime

        @pipeline
        @inputs(people)
        def high(cls, users: Dataset) -> Dataset:
            return users.filter(lambda df: df["score"] > 50)

    @dataset(index=True)
    class Cities:
        city: str = field(key=True)
        users: int
        total: int
        at: datetime

        @pipeline
        @inputs(people)
        def added(cls, users: Dataset) -> Dataset:
            forever = Continuous("forever")
            return users.groupby("city").aggregate(users=Count(window=forever), total=Sum(of="score", window=forever))

    return [people, *(redefined(cast("Any", each), name=f"{each.__name__}{name}") for each in (Winners, Cities))]


def changed(chance: random.Random, steps: int) -> list[tuple[str, Row | None, Row | None]]:
    """Return inserts, updates, also of keys, and deletions of users, with the rows before and after."""
    now, found = dict[int, Row](), list[tuple[str, Row | None, Row | None]]()
    for step in range(steps):
        uid = chance.choice(USERS)
        row = {
            "uid": uid,
            "city": chance.choice(CITIES),
            "score": chance.randrange(-5, 100),
            "at": START + timedelta(minutes=step),
        }
        before = now.get(uid)
        if before is not None and chance.random() < 0.3:
            found.append(("d", now.pop(uid), None))
            continue
        other = chance.choice(USERS)
        if before is not None and other not in now and chance.random() < 0.5:  # the key is updated
            now[other] = {**row, "uid": other}
            found.append(("k", now.pop(uid), now[other]))
            continue
        now[uid] = row
        found.append(("c" if before is None else "u", before, row))
    return found


def statement(op: str, before: Row | None, after: Row | None) -> str:
    """Return the statement that makes a change."""
    if after is None:
        assert before is not None
        return f"DELETE FROM users WHERE uid = {before['uid']}"
    at = after["at"].strftime("%Y-%m-%d %H:%M:%S")
    if op == "c":
        return f"INSERT INTO users VALUES ({after['uid']}, '{after['city']}', {after['score']}, '{at}')"
    assert before is not None
    values = f"uid = {after['uid']}, city = '{after['city']}', score = {after['score']}, at = '{at}'"
    return f"UPDATE users SET {values} WHERE uid = {before['uid']}"


def envelopes(op: str, before: Row | None, after: Row | None, at: datetime) -> list[Row]:
    """Return a change as Debezium writes it: an update of a key is a deletion and an insertion."""
    if op == "k":
        return [*envelopes("d", before, None, at), *envelopes("c", None, after, at)]
    return [{"op": op, "before": before, "after": after, "source": {"ts_ms": int(at.timestamp() * 1000)}}]


def lines(rows: list[Row]) -> list[bytes]:
    """Return rows as JSON."""
    return [json.dumps(each, default=lambda at: at.isoformat()).encode() for each in rows]


def test_served_values_are_equal(
    broker: Broker, mysql_server: MySQLServer, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    seed = int(time.time())
    print(f"seed {seed}")
    changes = list(enumerate(changed(random.Random(seed), 300)))
    mysql, postgres = mysql_shop.database(mysql_server), postgres_shop.database(postgres_server)
    columns = "uid bigint PRIMARY KEY, city varchar(20) NOT NULL, score int NOT NULL"
    mysql_server.run(f"CREATE TABLE users({columns}, at datetime NOT NULL)", database=mysql)
    postgres_server.run(f"CREATE TABLE users({columns}, at timestamp NOT NULL)", database=postgres)
    broker.create("equal-users")
    cluster = Kafka(name="k", bootstrap_servers=broker.address, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
    folder = tmp_path / "files"
    folder.mkdir()
    sources = {
        "Web": (Webhook(name="web").endpoint("users"), "debezium"),
        "Postgres": (postgres_shop.shop(postgres_server, postgres).table("users"), "native"),
        "MySQL": (mysql_shop.shop(mysql_server, mysql).table("users"), "native"),
        "Kafka": (cluster.topic("equal-users"), "debezium"),
        "Files": (Files(name="files", folder=str(folder)).path("*.json"), "debezium"),
    }
    made_of = [
        each
        for name, (connector, cdc) in sources.items()
        for each in datasets(name, connector, cdc, **({"every": "1s"} if name == "Files" else {}))
    ]
    with deployed(tmp_path, *made_of) as made:
        for number, part in enumerate((changes[:100], changes[100:])):  # the first ones may be in the first copies
            statements = [statement(*each) for _, each in part]
            mysql_server.run(*statements, database=mysql)
            postgres_server.run(*statements, database=postgres)
            rows = [row for step, each in part for row in envelopes(*each, START + timedelta(minutes=step))]
            made.log("users", rows)
            broker.produce("equal-users", lines(rows))
            (folder / f"{number}.json").write_bytes(b"\n".join([*lines(rows), b""]))
            table = mysql_server.run("SELECT uid, city, score FROM users", database=mysql)
            until(made, lambda table=table: all(served(made, each) == expected(table) for each in sources), 60)
            assert sorted(table) == sorted(postgres_server.run("SELECT uid, city, score FROM users", database=postgres))
        assert {op for _, (op, _, _) in changes} == {"c", "u", "d", "k"}
        assert letters(made) == []


def expected(rows: list[tuple[int, str, int]]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return what must be served of all users, of those with high scores, and of their cities."""
    users = {uid: {"uid": uid, "city": city, "score": score} for uid, city, score in rows}
    found = [users.get(each) for each in USERS]
    scores = [[score for _, city, score in rows if city == each] for each in CITIES]
    cities = [{"city": city, "users": len(each), "total": sum(each)} for city, each in zip(CITIES, scores, strict=True)]
    return found, [row if row and row["score"] > 50 else None for row in found], cities


def served(made: Any, name: str) -> tuple[list[Any], list[Any], list[Any]]:
    """Return what is served, without instants."""
    keys, at = [{"uid": each} for each in USERS], [LATER] * len(USERS)
    users, winners = (made.lookup(f"{each}{name}", keys, at) for each in ("Users", "Winners"))
    cities = made.lookup(f"Cities{name}", [{"city": each} for each in CITIES], [LATER] * len(CITIES))
    return without_instants(users), without_instants(winners), without_instants(cities)


def without_instants(rows: list[Any]) -> list[Any]:
    return [row and {name: value for name, value in row.items() if name != "at"} for row in rows]
