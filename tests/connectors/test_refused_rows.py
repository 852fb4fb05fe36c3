"""Rows that a destination refuses: dead letters, each counted once, while all others are delivered."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.postgres_shop import database
from tests.connectors.postgres_shop import shop as postgres_source
from tests.connectors.sink_shop import Endpoint, Shop, Worker
from tests.deployed import wait_until
from tests.servers.kafka import Broker
from tests.servers.postgres import PostgresServer
from umbel.catalog.catalog import Catalog
from umbel.connectors import HTTP, Kafka, sinks
from umbel.errors import UmbelError
from umbel.runtime import deliveries, refusals

names = (f"refused{number}" for number in itertools.count())
NOISE = random.Random(7)


def is_bad(row: Any) -> bool:
    """Return whether all destinations here refuse a row."""
    return row["amount"] >= 500 if "amount" in row else "bad" in row["city"]


class Target:
    """A destination that refuses some rows."""

    def __init__(self, connectors: tuple[Any, Any], how: dict[str, Any], read: Callable[[], Any]) -> None:
        self.connectors, self.how, self.read = connectors, how, read

    def shop(self, folder: Path, **how: Any) -> Shop:
        return Shop(folder, *self.connectors, **self.how, **how)


def postgres(server: PostgresServer) -> Target:
    name = database(server)
    server.run(
        'CREATE TABLE large("user" bigint, amount float8 CHECK (amount < 500), at timestamptz NOT NULL)',
        """CREATE TABLE norse("user" bigint PRIMARY KEY, city varchar(50) CHECK (city NOT LIKE '%bad%'), at timestamptz)""",
        database=name,
    )
    source = postgres_source(server, name)

    def read() -> Any:
        amounts = [row[0] for row in server.run("SELECT amount FROM large ORDER BY amount", database=name)]
        return amounts, dict(server.run('SELECT "user", city FROM norse', database=name))

    return Target((source.table("large"), source.table("norse")), {}, read)


class Refusing(Endpoint):
    """An HTTP server that refuses requests with a bad row, whole."""

    def take(self, path: str, key: str, body: bytes) -> int | None:
        self.requests.append((path, key, json.loads(body)))
        if any(is_bad(side) for row in json.loads(body) for side in (row["before"], row["after"]) if side):
            return 422
        return super().take(path, key, body)


def http(endpoint: Endpoint, address: str, **options: Any) -> Target:
    source = HTTP(name="out", host=address, healthz="/health")

    def read() -> Any:
        assert endpoint.conflicts == []
        cities = dict[int, str]()
        for row in sorted(endpoint.rows("/norse"), key=lambda row: row["source"]["ts_us"]):
            cities.pop(row["key"]["user"], None)
            if row["after"] is not None:
                cities[row["key"]["user"]] = row["after"]["city"]
        return sorted(row["after"]["amount"] for row in endpoint.rows("/large")), cities

    return Target((source.path("/large", **options), source.path("/norse", **options)), {"cdc": "debezium"}, read)


@pytest.fixture(params=["postgres", "http"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    if request.param == "postgres":
        yield postgres(request.getfixturevalue("postgres_server"))
        return
    endpoint = Refusing()
    with endpoint.running() as address:
        yield http(endpoint, address, limit=7)


@pytest.fixture
def made(target: Target, tmp_path: Path) -> Iterator[Shop]:
    shop = target.shop(tmp_path)
    yield shop
    shop.close()


def letters(made: Shop, dataset: str) -> list[Any]:
    """Return the dead letters of a sink, and check their counts."""
    catalog = made.deployed.deployment.catalog
    found = [each for each in catalog.dead_letters(dataset, 100_000) if each.source == refusals.ORDINAL]
    counts = catalog.counts()
    names = ("dead", "dead_reason:refused by a sink")
    assert [counts.get((dataset, name), 0) for name in names] == [len(found)] * 2
    return [json.loads(each.raw) for each in reversed(found)]


def bad_amounts(made: Shop) -> list[float]:
    return sorted(each["after"]["amount"] for each in letters(made, "Large"))


def test_a_refused_row_is_a_dead_letter_and_the_others_are_delivered(target: Target, made: Shop) -> None:
    made.sell(20, 600, 30, 700, 40)
    made.move(1, "Oslo")
    made.move(2, "Bergen")
    made.deliver()
    assert target.read() == ([20, 30, 40], {1: "Oslo", 2: "Bergen"})
    assert bad_amounts(made) == [600, 700]
    made.move(1, "a bad town")
    made.move(2, "Tromsø")
    made.deliver()
    assert target.read()[1] == {1: "Oslo", 2: "Tromsø"}  # a refused row leaves the one before
    (letter,) = letters(made, "Norse")
    assert (letter["op"], letter["key"], letter["after"]["city"]) == ("u", {"user": 1}, "a bad town")
    made.move(1, "Bodø")
    made.move(2, None)
    made.sell(50)
    made.deliver()
    assert target.read() == ([20, 30, 40, 50], {1: "Bodø"})
    assert len(letters(made, "Norse")) == 1
    assert bad_amounts(made) == [600, 700]


def test_rows_that_are_all_refused_wait_for_one_that_is_accepted(target: Target, made: Shop) -> None:
    made.sell(600, 700)
    made.drain()
    for _ in range(2):
        with pytest.raises(UmbelError, match="no row is accepted, of 2 tried: ") as report:
            made.delivery("Large").step()
        assert report.value.hint
    assert bad_amounts(made) == []
    made.sell(800)
    made.sell(20)
    made.sell(900)
    made.deliver()
    assert target.read()[0] == [20]
    assert bad_amounts(made) == [600, 700, 800, 900]


def test_a_destination_that_is_wrong_makes_no_dead_letters(
    target: Target, made: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sinks, refusals):
        monkeypatch.setattr(module, "ENOUGH", 20)
    made.sell(*[500.0 + n for n in range(40)], *[20.0 + n for n in range(15)])
    made.drain()
    with pytest.raises(UmbelError, match=r"no row is accepted, of \d+ tried: "):
        made.delivery("Large").step()
    assert bad_amounts(made) == []


@pytest.mark.parametrize("at_once", [3, 20_000])
def test_a_backlog_with_refused_rows_is_delivered_in_any_transactions(
    target: Target, made: Shop, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "AT_ONCE", at_once)
    for n in range(4):
        made.sell(*[600.0 + n * 10 + k for k in range(4)], 20.0 + n)
        made.drain()
    made.sell(900)
    made.drain()
    made.sell(50)
    made.deliver()
    made.deliver()
    assert target.read()[0] == [20, 21, 22, 23, 50]
    assert bad_amounts(made) == sorted([*[600.0 + n * 10 + k for n in range(4) for k in range(4)], 900])


def test_a_sink_that_waits_is_as_before(target: Target, tmp_path: Path) -> None:
    with contextlib.closing(target.shop(tmp_path, refused="wait")) as made:
        made.sell(20, 600, 30)
        made.drain()
        with pytest.raises(UmbelError):
            made.delivery("Large").step()
        assert bad_amounts(made) == []


class Crash(BaseException):
    """A crash of the worker."""


POINTS = ["noted", "committed", "position noted", "buried", "forgotten"]


@pytest.mark.parametrize(
    ("at_once", "crashes"), [(3, 2), *(pytest.param(each, 3, marks=pytest.mark.nightly) for each in (3, 20_000))]
)
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_counts_each_refused_row_once(
    target: Target, made: Shop, point: str, at_once: int, crashes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "AT_ONCE", at_once)
    for n in range(crashes):
        made.sell(20.0 + n, 600.0 + n, 30.0 + n, 700.0 + n, 40.0 + n, 800.0 + n)
        made.drain()
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, point, made)
            delivery = made.delivery("Large")
            with contextlib.suppress(Crash):
                delivery.step()
            delivery.close()
    made.deliver()
    made.deliver()
    assert target.read()[0] == sorted(amount for amount in made.amounts if amount < 500)
    assert bad_amounts(made) == sorted(amount for amount in made.amounts if amount >= 500)


def crash_at(patch: pytest.MonkeyPatch, point: str, made: Shop) -> None:
    """Let a delivery crash once behind a step."""

    def then_crash(owner: Any, name: str, is_the_one: Callable[..., bool] = lambda *_: True) -> None:
        before = getattr(owner, name)

        def run(self: Any, *args: Any, **options: Any) -> Any:
            found = before(self, *args, **options)
            if is_the_one(*args):
                raise Crash
            return found

        patch.setattr(owner, name, run)

    match point:
        case "noted":
            then_crash(refusals.Refusals, "settle")
        case "committed":
            connector = made.delivery("Large")._sink.definition.connector
            then_crash(type(connector.writer_of(made.delivery("Large")._sink.options)), "write_accepted")
        case "position noted":
            then_crash(Catalog, "note", lambda name, *_: name.startswith("sink:"))
        case "buried":
            then_crash(Catalog, "bury")
        case "forgotten":
            then_crash(refusals.Refusals, "bury")


@pytest.mark.parametrize("kills", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_kills_count_each_refused_row_once(target: Target, made: Shop, kills: int) -> None:
    chance = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")
    worker = Worker(made, {})

    def matches() -> bool:
        with contextlib.suppress(Exception):
            good = sorted(amount for amount in made.amounts if amount < 500)
            bad = sorted(amount for amount in made.amounts if amount >= 500)
            return (target.read()[0], bad_amounts(made)) == (good, bad)
        return False

    try:
        for _ in range(kills):
            worker.mind()
            for _ in range(3):
                made.sell(*[float(chance.randint(11, 600)) for _ in range(chance.randint(1, 60))])
                time.sleep(chance.uniform(0.1, 1.0))
            worker.kill()
        worker.mind()
        made.sell(20)
        wait_until(matches, lambda: (target.read()[0], bad_amounts(made), made.amounts), 90)
    finally:
        worker.kill()


# ---- Kafka


def kafka(broker: Broker) -> Target:
    topic = next(names)
    broker.create(f"{topic}-large", **{"max.message.bytes": "2000"})
    broker.create(f"{topic}-norse", **{"max.message.bytes": "2000", "cleanup.policy": "compact"})
    cluster = Kafka(name="out", bootstrap_servers=broker.address, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")

    def read() -> Any:
        amounts = [json.loads(each.value())["after"]["amount"] for each in broker.consume(f"{topic}-large")]
        found = [(json.loads(each.key()), each.value()) for each in broker.consume(f"{topic}-norse")]
        cities = dict[int, str]()
        for key, value in found:
            cities.pop(key["user"], None)
            if value is not None and (after := json.loads(value)["after"]) is not None:
                cities[key["user"]] = after["city"]
        return sorted(amounts), cities

    return Target((cluster.topic(f"{topic}-large"), cluster.topic(f"{topic}-norse")), {"cdc": "debezium"}, read)


def large_text(size: int = 4000) -> str:
    """Return a text that cannot be compressed to half."""
    return "".join(
        NOISE.choice("abcdefghijklmnopqrstuvwxyzæøåABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") for _ in range(size)
    )


@pytest.fixture
def kafka_target(broker: Broker) -> Target:
    return kafka(broker)


def test_a_message_that_is_too_large_is_a_dead_letter(kafka_target: Target, tmp_path: Path) -> None:
    with contextlib.closing(kafka_target.shop(tmp_path)) as made:
        for n in range(40):
            made.move(n, f"City {n}")
        made.move(7, large_text())
        made.move(23, large_text())
        made.sell(*[20.0 + n for n in range(200)])  # in one batch they are larger than a message may be
        made.deliver()
        cities = {n: f"City {n}" for n in range(40) if n not in {7, 23}}
        assert kafka_target.read() == ([20.0 + n for n in range(200)], cities)
        assert sorted(each["key"]["user"] for each in letters(made, "Norse")) == [7, 23]
        made.move(7, "Oslo")
        made.move(8, large_text())
        made.move(9, None)
        made.deliver()
        assert kafka_target.read()[1] == {n: city for n, city in cities.items() if n != 9} | {7: "Oslo"}
        assert len(letters(made, "Norse")) == 3
        made.move(10, large_text())
        made.drain()
        with pytest.raises(UmbelError, match="no row is accepted, of 1 tried: "):
            made.delivery("Norse").step()
        assert len(letters(made, "Norse")) == 3


@pytest.mark.parametrize(
    "point", [each if each == "committed" else pytest.param(each, marks=pytest.mark.nightly) for each in POINTS]
)
def test_a_crash_sends_no_message_twice(kafka_target: Target, tmp_path: Path, point: str) -> None:
    with contextlib.closing(kafka_target.shop(tmp_path)) as made:
        for n in range(2):
            made.move(n, large_text())
            for other in range(5):
                made.move(10 + 10 * n + other, "Oslo")
            made.drain()
            with pytest.MonkeyPatch.context() as patch:
                crash_at(patch, point, made)
                delivery = made.delivery("Norse")
                with contextlib.suppress(Crash):
                    delivery.step()
                delivery.close()
        made.move(50, "Oslo")
        made.deliver()
        assert kafka_target.read()[1] == dict.fromkeys((*range(10, 15), *range(20, 25), 50), "Oslo")
        assert [each["key"]["user"] for each in letters(made, "Norse")] == [0, 1]


def test_kills_lose_no_row_beside_a_large_message(kafka_target: Target, tmp_path: Path) -> None:
    chance = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")
    bad, good = set[int](), dict[int, str]()
    with contextlib.closing(kafka_target.shop(tmp_path)) as made:
        worker = Worker(made, {})

        def matches() -> bool:
            with contextlib.suppress(Exception):
                refused = sorted(each["key"]["user"] for each in letters(made, "Norse"))
                return (kafka_target.read()[1], refused) == (good, sorted(bad))
            return False

        try:
            for number in range(90):
                if number % 30 == 0:
                    worker.mind()
                if number % 6 == 0:
                    bad.add(number)
                    made.move(number, large_text())
                else:
                    good[number] = f"City {number}"
                    made.move(number, good[number])
                time.sleep(chance.uniform(0.0, 0.1))
                if number % 30 == 29:
                    worker.kill()
            worker.mind()
            wait_until(matches, lambda: (kafka_target.read()[1], letters(made, "Norse")), 90)
        finally:
            worker.kill()
