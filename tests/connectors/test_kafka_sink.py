"""A topic as a sink: what a reader of committed records sees, also after crashes at any point of a delivery."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed
from tests.servers.kafka import Broker
from umbel.connectors import Kafka, Webhook, sink, source
from umbel.connectors.kafka import sink as module
from umbel.connectors.kafka import transactions
from umbel.connectors.sinks import RowChange, SinkPosition
from umbel.datasets import Dataset, dataset, field, pipeline
from umbel.errors import Transient
from umbel.lib import inputs
from umbel.runtime import deliveries
from umbel.runtime.batch import drain
from umbel.runtime.deliveries import SinkDelivery, sinks

__owner__ = "tests@example.com"
names = (f"s{number}" for number in itertools.count())


def shop(broker: Broker, topic: str) -> list[Any]:
    """Return two datasets that rows are logged to, and those with sinks that are made of them."""
    web = Webhook(name="web")

    @source(web.endpoint("sales"), disorder="14d", cdc="append")
    @dataset
    class Sale:
        user: int
        amount: float
        at: datetime

    @source(web.endpoint("users"), disorder="14d", cdc="debezium")
    @dataset
    class User:
        user: int = field(key=True)
        city: str
        at: datetime

    cluster = Kafka(name="out", bootstrap_servers=broker.address, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
    return [Sale, User, *drained(cluster, topic, Sale, User)]


def drained(cluster: Kafka, topic: str, sales_of: Any, users_of: Any) -> list[Any]:
    """Return a keyless and a keyed dataset with sinks."""

    @sink(cluster.topic(f"{topic}-large"), cdc="debezium")
    @dataset
    class Large:
        user: int
        amount: float
        at: datetime

        @pipeline
        @inputs(sales_of)
        def large(cls, sales: Dataset) -> Dataset:
            return sales.filter(lambda df: df["amount"] > 10)

    @sink(cluster.topic(f"{topic}-norse"), cdc="debezium")
    @dataset
    class Norse:
        user: int = field(key=True)
        city: str
        at: datetime

        @pipeline
        @inputs(users_of)
        def norse(cls, users: Dataset) -> Dataset:
            return users.filter(lambda df: df["city"] != "Rome")

    return [Large, Norse]


class Shop:
    """A deployment with two sinks."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.topic, self._broker = next(names), broker
        for name in ("large", "norse"):
            broker.create(f"{self.topic}-{name}")
        self.deployed = Deployed(folder / "umbel")
        self.deployed.commit(shop(broker, self.topic))
        self.sales = 0

    def sell(self, *amounts: float) -> None:
        """Log sales, and run a batch."""
        rows = [
            {"user": 1, "amount": amount, "at": f"2026-03-01T00:00:{n % 60:02}Z"} for n, amount in enumerate(amounts)
        ]
        self.deployed.log("sales", rows)
        drain(self.deployed.deployment)

    def move(self, op: str, city: str, day: int, user: int = 1) -> None:
        """Log the move of a user as Debezium does, and run a batch."""
        row = {"user": user, "city": city, "at": f"2026-03-{day:02}T00:00:00Z"}
        millis = int(datetime.fromisoformat(row["at"]).timestamp() * 1000)
        sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        self.deployed.log("users", [{"op": op, **sides, "source": {"ts_ms": millis}}])
        drain(self.deployed.deployment)

    def delivery(self, name: str) -> SinkDelivery:
        deployment = self.deployed.deployment
        (found,) = [each for each in sinks(deployment, deployment.catalog.revision()).values() if each.dataset == name]
        return SinkDelivery(deployment, found)

    def messages(self, name: str) -> list[tuple[Any, Any]]:
        """Return keys and values of the committed records."""
        found = self._broker.consume(f"{self.topic}-{name}")
        return [(each.key() and json.loads(each.key()), each.value() and json.loads(each.value())) for each in found]

    def amounts(self) -> list[float]:
        return [value["after"]["amount"] for _, value in self.messages("large")]

    def moves(self) -> list[tuple[str, str | None, str | None]]:
        values = [value for _, value in self.messages("norse") if value]
        return [(each["op"], *(each[side] and each[side]["city"] for side in ("before", "after"))) for each in values]


@pytest.fixture
def made(broker: Broker, tmp_path: Path) -> Iterator[Shop]:
    found = Shop(broker, tmp_path)
    yield found
    found.deployed.close()


def test_rows_without_keys_are_insertions(made: Shop) -> None:
    made.sell(5, 20, 30)
    delivery = made.delivery("Large")
    assert delivery.step() == 2
    made.sell(40)
    assert delivery.step() == 1
    assert delivery.step() == 0
    (key, value), *_ = made.messages("large")
    assert key is None
    assert value["op"] == "c"
    assert value["before"] is None
    assert value["after"] == {"user": 1, "amount": 20.0, "at": "2026-03-01T00:00:01Z"}
    assert value["source"] == {
        "connector": "umbel",
        "table": "Large",
        "ts_ms": 1772323201000,
        "ts_us": 1772323201000000,
    }
    assert made.amounts() == [20, 30, 40]
    delivery.close()


def test_a_keyed_dataset_is_what_its_current_rows_are(made: Shop) -> None:
    made.move("c", "Oslo", 1)
    delivery = made.delivery("Norse")
    steps = [
        ("u", "Bergen", 5),
        ("u", "Tromsø", 3),
        ("u", "Bergen", 5),
        ("d", "Bergen", 7),
        ("c", "Oslo", 9),
        ("u", "Rome", 10),
    ]
    for op, city, day in steps:
        delivery.step()
        made.move(op, city, day)
    delivery.step()
    assert made.moves() == [
        ("c", None, "Oslo"),
        ("u", "Oslo", "Bergen"),  # that Tromsø came in between is no change of what is
        ("d", "Bergen", None),
        ("c", None, "Oslo"),
        ("d", "Oslo", None),  # Rome is filtered out
    ]
    found = made.messages("norse")
    assert {json.dumps(key) for key, _ in found} == {'{"user": 1}'}
    assert [number for number, (_, value) in enumerate(found) if value is None] == [3, 6]  # behind each deletion
    delivery.close()


def test_several_batches_are_delivered_as_their_difference(made: Shop) -> None:
    for day, city in enumerate(["Oslo", "Bergen", "Oslo", "Bodø"], 1):
        made.move("u", city, day)
    made.move("u", "Oslo", 1, user=2)
    made.move("d", "Oslo", 2, user=2)
    delivery = made.delivery("Norse")
    assert delivery.step() == 1
    assert made.moves() == [("c", None, "Bodø")]
    delivery.close()


def test_batches_that_wait_are_read_by_and_by(made: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "READ_AT_ONCE", 2)
    for amount in range(20, 25):
        made.sell(amount)
    delivery = made.delivery("Large")
    assert [delivery.step() for _ in range(4)] == [2, 2, 1, 0]
    assert made.amounts() == [20, 21, 22, 23, 24]
    delivery.close()


def test_a_sink_and_a_source_understand_each_other(made: Shop, broker: Broker, tmp_path: Path) -> None:
    made.move("c", "Oslo", 1)
    made.move("c", "Bodø", 1, user=2)
    delivery = made.delivery("Norse")
    delivery.step()
    made.move("d", "Oslo", 2)
    made.move("u", "Bergen", 3, user=2)
    delivery.step()
    delivery.close()
    assert len(made.messages("norse")) == 5
    copy = Deployed(tmp_path / "copy")
    copy.commit([copied(broker, f"{made.topic}-norse")])
    drain(copy.deployment)
    days = [datetime(2026, 3, day, 12, tzinfo=UTC) for day in (1, 2, 3)]
    cities = [[row and row["city"] for row in copy.lookup("Copy", [{"user": user}] * 3, days)] for user in (1, 2)]
    assert cities == [["Oslo", None, None], ["Bodø", "Bodø", "Bergen"]]
    counts = {name: count for (_, name), count in copy.deployment.catalog.counts().items()}
    assert counts == {"rows": 4, "tombstones": 1, "offsets_without_record": counts["offsets_without_record"]}
    copy.close()


def copied(broker: Broker, topic: str) -> Any:
    cluster = Kafka(name="k", bootstrap_servers=broker.address, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")

    @source(cluster.topic(topic), disorder="14d", cdc="debezium")
    @dataset(index=True)
    class Copy:
        user: int = field(key=True)
        city: str
        at: datetime

    return Copy


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "AT_ONCE", 10)


AMOUNTS = [float(n) for n in range(11, 111)]


@pytest.mark.usefixtures("small")
def test_a_large_batch_is_several_transactions(made: Shop) -> None:
    made.sell(*AMOUNTS)
    made.sell(500)
    delivery = made.delivery("Large")
    assert delivery.step() == 101
    assert sorted(made.amounts()) == [*AMOUNTS, 500]
    delivery.close()


def crash(*_: object) -> None:
    raise KeyboardInterrupt


CRASHES: dict[str, Callable[[pytest.MonkeyPatch, Shop, Any], None]] = {
    "before the transaction": lambda patch, _, writer: patch.setattr(writer, "_send", crash),
    "before its end": lambda patch, _, writer: patch.setattr(
        writer._topic, "_producer", Halting(writer._topic._producer)
    ),
    "after its end": lambda patch, shop, _: patch.setattr(type(shop.deployed.deployment.catalog), "note", crash),
}


class Halting:
    """A producer that crashes before it commits."""

    commit_transaction = staticmethod(crash)

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("point", CRASHES)
def test_a_crash_leaves_nothing_out_and_writes_nothing_twice(made: Shop, point: str) -> None:
    made.sell(*AMOUNTS)
    for done in range(4):
        delivery = made.delivery("Large")
        writer = delivery._open()
        with pytest.MonkeyPatch.context() as patch:
            CRASHES[point](patch, made, writer)
            with pytest.raises(KeyboardInterrupt):
                delivery.step()
        made.sell(1000 + done)
    delivery = made.delivery("Large")
    delivery.step()
    assert sorted(made.amounts()) == [*AMOUNTS, 1000, 1001, 1002, 1003]
    delivery.close()


def test_a_former_writer_cannot_write(made: Shop) -> None:
    made.sell(20)
    former, later = made.delivery("Large"), made.delivery("Large")
    former._open()
    later.step()
    made.sell(30)
    with pytest.raises(Transient, match="sink to topic"):
        former.step()
    later.step()
    assert made.amounts() == [20, 30]
    later.close()


def test_a_transaction_that_does_not_end_is_left_behind(made: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    made.sell(20)
    delivery, released = made.delivery("Large"), threading.Event()
    writer = delivery._open()
    monkeypatch.setattr(transactions, "DEADLINE", 0.1)
    monkeypatch.setattr(writer._topic, "_transaction", lambda *_: released.wait())
    with pytest.raises(Transient, match="did not end within"):
        delivery.step()
    monkeypatch.undo()
    assert delivery.step() == 1
    released.set()
    assert made.amounts() == [20]
    delivery.close()


def test_a_destination_that_has_forgotten_its_position(made: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    made.sell(20)
    delivery = made.delivery("Large")
    delivery.step()
    delivery.close()
    position = module.TopicWriter.position

    def forgotten(writer: module.TopicWriter) -> SinkPosition:
        position(writer)
        return SinkPosition()

    monkeypatch.setattr(module.TopicWriter, "position", forgotten)
    made.sell(30)
    delivery = made.delivery("Large")
    delivery.step()
    assert made.amounts() == [20, 30]
    delivery.close()


def test_a_part_of_the_first_backfill_is_a_position(made: Shop) -> None:
    """The offset of the batch before it is the first one there is."""
    made.sell(5)
    first, reached = made.delivery("Large"), SinkPosition(-2, 10)
    first._open().write([RowChange(None, None, {"amount": 20.0}, 0)], reached)
    second = made.delivery("Large")
    second._open()
    assert second._position == reached
    first.close()
    second.close()


def test_a_topic_that_is_made_anew_is_reported_once(made: Shop, broker: Broker) -> None:
    made.sell(20)
    delivery = made.delivery("Large")
    delivery.step()
    delivery.close()
    broker.delete(f"{made.topic}-large")
    broker.create(f"{made.topic}-large")
    made.sell(30)
    for _ in range(2):
        delivery = made.delivery("Large")
        delivery.step()
        delivery.close()
    found = [each.text for each in made.deployed.deployment.catalog.events() if "made anew" in each.text]
    assert len(found) == 1
    assert made.amounts() == [30]


@pytest.mark.parametrize("late", [0.0, 0.02, 0.05, 0.1, 0.5])
def test_a_refusal_is_the_reason_whenever_it_arrives(broker: Broker, late: float) -> None:
    """It may be there before the transaction ends, and be reported after that."""
    name = f"refusing-{random.randrange(1 << 30)}"
    broker.create(name, **{"max.message.bytes": "2000"})
    topic = transactions.TransactionalTopic({"bootstrap.servers": broker.address}, name, f"umbel-{name}", "a sink")
    topic.position()

    def send() -> None:
        topic.send(None, random.randbytes(4000))
        time.sleep(late)

    with contextlib.closing(topic):
        with pytest.raises(Transient):
            topic.write(send, 1, "0")
        assert "size too large" in topic.refused
