"""Topics that cannot be read are refused at commit, with what to do; nothing is committed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.shop_datasets import deployed, until
from tests.servers.kafka import PASSWORD, USER, Broker, started_or_missing
from umbel.connectors import Kafka, Webhook, sink, source
from umbel.connectors.kafka.examining import examine
from umbel.datasets import Dataset, dataset, pipeline
from umbel.errors import InvalidValue, Transient, UmbelError
from umbel.lib import inputs

__owner__ = "tests@example.com"
LOGIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}


def events(topic: str, **options: Any) -> Any:
    plain = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "PLAIN"}
    cluster = Kafka(name="k", **{**plain, **options})

    @source(cluster.topic(topic), disorder="14d", cdc="append")
    @dataset
    class Event:
        n: int
        at: datetime

    return Event


def refusal(folder: Path, read: Any) -> UmbelError:
    """Return the error of a commit, which must leave nothing behind."""
    with deployed(folder) as made:
        with pytest.raises(UmbelError) as caught:
            made.commit([read])
        assert made.deployment.catalog.latest() == 0
        return caught.value


def refusals(broker: Broker) -> list[tuple[str, dict[str, Any], type[UmbelError], list[str]]]:
    """Return topics, arguments of their cluster, and the kinds and parts of the errors."""
    open_, sasl = broker.address, broker.sasl_address
    return [
        (
            "commit.order",
            {"bootstrap_servers": open_},
            InvalidValue,
            ["no such topic; did you mean 'commit.orders'", "--create"],
        ),
        (
            "commit.orders",
            {"bootstrap_servers": sasl, **LOGIN, "sasl_plain_password": "wr0ng"},
            InvalidValue,
            ["uthentication failed", "correct sasl_mechanism="],
        ),
        (
            "commit.closed",
            {"bootstrap_servers": sasl, **LOGIN},
            InvalidValue,
            ["uthorization failed", "--topic commit.closed"],
        ),
        (
            "commit.orders",
            {"bootstrap_servers": sasl, **LOGIN, "sasl_mechanism": "SCRAM-SHA-256"},
            InvalidValue,
            ["nsupported SASL mechanism", "that the broker has enabled"],
        ),
        ("commit.orders", {"bootstrap_servers": "127.0.0.1:1"}, Transient, ["does not answer", "check that it runs"]),
        (
            "commit.orders",
            {"bootstrap_servers": open_, "options": {"socket.timeout.ms": "soon"}},
            InvalidValue,
            ["socket.timeout.ms", "options="],
        ),
    ]


def test_topics_that_cannot_be_read_are_refused(broker: Broker, tmp_path: Path) -> None:
    for topic in ("commit.orders", "commit.closed"):
        broker.create(topic)
    broker.grant("TOPIC", "commit.orders", "DESCRIBE", "READ")
    for number, (topic, options, kind, parts) in enumerate(refusals(broker)):
        found = refusal(tmp_path / str(number), events(topic, **options))
        text = found.described()
        assert type(found) is kind, text
        assert [part for part in parts if part not in text] == [], text
        assert PASSWORD not in text
        assert "wr0ng" not in text
        assert "test_kafka_commit.py" in text


def test_a_user_who_may_only_describe_is_refused(broker: Broker, tmp_path: Path) -> None:
    broker.create("commit.seen")
    broker.grant("TOPIC", "commit.seen", "DESCRIBE")
    for rows in ([], [b"{}"]):
        broker.produce("commit.seen", rows)
        read = events("commit.seen", bootstrap_servers=broker.sasl_address, **LOGIN)
        found = refusal(tmp_path / str(len(rows)), read)
        assert type(found) is InvalidValue, found.described()
        assert "--operation Read" in found.described()


def drained(topic: str, **options: Any) -> list[Any]:
    """Return a dataset that rows are logged to, and one with a sink that is made of it."""
    plain = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "PLAIN"}
    cluster = Kafka(name="k", **{**plain, **options})

    @source(Webhook(name="web").endpoint("rows"), disorder="14d", cdc="append")
    @dataset
    class Row:
        n: int
        at: datetime

    @sink(cluster.topic(topic), cdc="debezium")
    @dataset
    class Sent:
        n: int
        at: datetime

        @pipeline
        @inputs(Row)
        def all(cls, rows: Dataset) -> Dataset:
            return rows.filter(lambda df: df["n"] > 0)

    return [Row, Sent]


EXAMINED = """
import sys, threading, time
from umbel.connectors import Kafka
from umbel.connectors.kafka.examining import examine_sink
from umbel.errors import UmbelError

plain = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "PLAIN"}
topic = Kafka(name="k", bootstrap_servers=sys.argv[1], **plain).topic("sent")

def examined(end):
    while time.monotonic() < end:
        try:
            examine_sink(topic)
        except UmbelError:
            time.sleep(0.02)

threads = [threading.Thread(target=examined, args=(time.monotonic() + 15,)) for _ in range(6)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


def test_topics_that_cannot_be_written_to_are_refused(broker: Broker, tmp_path: Path) -> None:
    broker.create("commit.sent")
    login = {**LOGIN, "bootstrap_servers": broker.sasl_address, "sasl_mechanism": "PLAIN"}

    def refused(topic: str, *parts: str, **options: Any) -> None:
        with deployed(tmp_path / str(len(list(tmp_path.iterdir())))) as made:
            with pytest.raises(UmbelError) as caught:
                made.commit(drained(topic, **options))
            text = caught.value.described()
            assert [part for part in parts if part not in text] == [], text
            assert made.deployment.catalog.latest() == 0

    refused("commit.send", "no such topic; did you mean 'commit.sent'", bootstrap_servers=broker.address)
    refused("commit.sent", "uthorization failed", **login)
    broker.grant("TOPIC", "commit.sent", "DESCRIBE", "READ")
    refused("commit.sent", "may not WRITE", "--operation Write", **login)
    broker.grant("TOPIC", "commit.sent", "WRITE")
    refused("commit.sent", "--transactional-id umbel-", **login)
    broker.grant("TRANSACTIONAL_ID", "umbel-", "DESCRIBE", "WRITE", is_prefix=True)
    refused("commit.sent", "--group umbel-", **login)
    broker.grant("GROUP", "umbel-", "DESCRIBE", "READ", is_prefix=True)
    for number, options in enumerate((login, {"bootstrap_servers": "127.0.0.1:1"})):  # one that is down may come up
        with deployed(tmp_path / f"right{number}") as made:
            made.commit(drained("commit.sent", **options))
            assert made.deployment.catalog.latest() == 1


def test_a_broker_that_dies_meanwhile_ends_no_process(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    """A request for the offsets of a group ended it within seconds, by a failed assertion of librdkafka."""
    script = tmp_path / "examined.py"
    script.write_text(EXAMINED)
    for broker in started_or_missing(tmp_path_factory.mktemp("dying")):
        broker.create("sent")
        process = subprocess.Popen([sys.executable, str(script), broker.address])
        while process.poll() is None:
            time.sleep(2)
            broker.kill()
            broker.start()
        assert process.returncode == 0


def test_no_permission_for_a_group_is_needed(broker: Broker) -> None:
    """The broker says so sooner or later than it answers the request for records."""
    broker.create("commit.plain")
    broker.grant("TOPIC", "commit.plain", "DESCRIBE", "READ")
    login = {**LOGIN, "bootstrap_servers": broker.sasl_address, "sasl_mechanism": "PLAIN"}
    cluster = Kafka(name="k", **login)
    for _ in range(30):
        examine(cluster.topic("commit.plain"))


def test_a_broker_that_restarts_meanwhile(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    """The commit is refused as one to repeat, and succeeds once the broker is back."""
    for broker in started_or_missing(tmp_path_factory.mktemp("restarted")):
        broker.create("orders")
        read = events("orders", bootstrap_servers=broker.address)
        broker.kill()
        found = refusal(tmp_path / "down", read)
        assert type(found) is Transient, found.described()
        broker.begin()
        with deployed(tmp_path / "back") as made:
            until(made, committed(made, read), 60)


def committed(made: Any, read: Any) -> Callable[[], bool]:
    def is_committed() -> bool:
        try:
            made.commit([read])
        except Transient:
            return False
        return True

    return is_committed
