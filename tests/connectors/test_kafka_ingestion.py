"""A topic through ingestion: numbers with gaps, late rows and rows of the future, functions that fail, a missing library."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed
from tests.servers.kafka import Broker
from umbel.connectors import Kafka, sink, source
from umbel.connectors.kafka.offset_ranges import SKIPPED
from umbel.datasets import Dataset, dataset, pipeline
from umbel.errors import NotSupported
from umbel.lib import inputs
from umbel.runtime.batch import drain
from umbel.runtime.deployment import JOB
from umbel.runtime.progress import EventTimeProgress

__owner__ = "tests@example.com"
TOPIC = "gaps"


def entities(broker: Broker, topic: str = TOPIC) -> list[Any]:
    cluster = Kafka(name="k", bootstrap_servers=broker.address, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")

    @source(cluster.topic(topic), disorder="1d", cdc="append")
    @dataset
    class Event:
        n: int
        at: datetime

    @dataset
    class Inverse:
        n: int
        inverse: float
        at: datetime

        @pipeline
        @inputs(Event)
        def inverted(cls, events: Dataset) -> Dataset:
            return events.assign("inverse", float, lambda df: df["n"].map(lambda n: 60 / n))

    return [Event, Inverse]


def row(n: int, at: datetime) -> bytes:
    return json.dumps({"n": n, "at": at.isoformat()}).encode()


def test_dead_letters_have_their_offsets_where_offsets_have_gaps(broker: Broker, tmp_path: Path) -> None:
    broker.create(TOPIC)
    deployed, now = Deployed(tmp_path / "umbel"), datetime.now(UTC).replace(microsecond=0)
    deployed.commit(entities(broker))
    broker.transact(TOPIC, [row(n, now) for n in (1, 2)], commit=True)  # 0, 1, and a marker
    assert drain(deployed.deployment) == 1
    broker.transact(TOPIC, [row(0, now)], commit=False)  # 3, and a marker
    broker.transact(TOPIC, [row(3, now), row(0, now)], commit=True)  # 5, 6, and a marker
    broker.transact(TOPIC, [row(4, now - timedelta(days=3)), row(5, now + timedelta(days=9))], commit=True)  # 8, 9
    broker.produce(TOPIC, [b"{", row(6, now)])  # 11, 12
    assert drain(deployed.deployment) == 1
    letters = {
        each.position.rpartition(" ")[2]: each.reason
        for name in ("Event", "Inverse")
        for each in deployed.deployment.catalog.dead_letters(name, 100)
    }
    assert sorted(letters) == [f"{TOPIC}[0]@{offset}" for offset in (11, 6, 8, 9)]
    assert letters[f"{TOPIC}[0]@8"].startswith("late:")
    assert "is ahead of" in letters[f"{TOPIC}[0]@9"]
    assert "ZeroDivisionError" in letters[f"{TOPIC}[0]@6"]
    assert deployed.deployment.catalog.counts()["Event", SKIPPED] == 5
    rows = deployed.changes("Event").sort("_seq")
    assert rows["_seq"].to_list() == [0, 1, 5, 6, 12]
    assert rows["n"].to_list() == [1, 2, 3, 0, 6]
    deployed.close()


def test_a_partition_with_more_messages_than_others_is_not_late(broker: Broker, tmp_path: Path) -> None:
    """Batches read a share of each partition: the event time of short ones would be far ahead of the long one's."""
    broker.create("skewed", partitions=3)
    deployed, start = Deployed(tmp_path / "umbel", budget=20_000), datetime.now(UTC) - timedelta(days=400)
    event = entities(broker, "skewed")[0]
    deployed.commit([event])

    def send(days: float, counts: Sequence[int]) -> None:
        for partition, count in enumerate(counts):
            at = (start + timedelta(days=days + 100 * number / count) for number in range(count))
            broker.produce("skewed", [row(1, each) for each in at], partition=partition)

    def reached() -> datetime:
        place = deployed.deployment
        (key,) = (each.key for each in place.graph(place.catalog.revision()).sources())
        state = place.catalog.progress(JOB, sys.maxsize)
        assert state is not None
        return EventTimeProgress.of(state.state).newest[key]

    send(0, [3000, 100, 1000])
    assert drain(deployed.deployment, batches=3) == 3
    assert reached() < start + timedelta(days=20), "as far as the long partition"
    drain(deployed.deployment)
    assert reached() > start + timedelta(days=99)
    send(100, [1000, 3000, 10])  # after a while in which nothing was read
    drain(deployed.deployment)
    assert deployed.deployment.catalog.dead_letters() == []
    assert deployed.taken() == {"Event": 8110}
    broker.produce("skewed", [row(1, start + timedelta(days=190))], partition=2)
    drain(deployed.deployment)
    (letter,) = deployed.deployment.catalog.dead_letters()
    assert letter.reason.startswith("late: ")
    deployed.close()


@pytest.mark.parametrize("direction", ["source", "sink"])
def test_a_missing_library_is_an_error_of_the_commit(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direction: str
) -> None:
    deployed, (event, inverse) = Deployed(tmp_path / "umbel"), entities(broker)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    cluster = Kafka(name="k", bootstrap_servers="b:1", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
    drained = sink(cluster.topic("out"), cdc="debezium")(inverse)
    with pytest.raises(NotSupported, match=r"pip install 'umbel\[kafka\]'"):
        deployed.commit([event] if direction == "source" else [event, drained])
    deployed.close()


def reasons(deployed: Deployed) -> list[str]:
    """Return why rows of the dataset are dead letters."""
    return [each.reason for each in deployed.deployment.catalog.dead_letters("Event", 100)]


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_holds_the_watermark(broker: Broker, tmp_path: Path, *, commit: bool) -> None:
    """Rows whose producer committed after those of other partitions had been read were late."""
    topic, now = f"open-{commit}", datetime.now(UTC).replace(microsecond=0)
    broker.create(topic, 2)
    deployed, old = Deployed(tmp_path / "umbel"), now - timedelta(days=3)
    deployed.commit(entities(broker, topic))
    for partition in (0, 1):
        broker.produce(topic, [row(partition, old)], partition)
    drain(deployed.deployment)
    producer = broker.producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, row(2, old), partition=1)
    assert producer.flush(30) == 0
    for n in (3, 4):
        broker.produce(topic, [row(n, now)])
        assert drain(deployed.deployment) == 1
    producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    broker.wait_for_ends(topic)
    assert drain(deployed.deployment) == 1
    assert not reasons(deployed)
    assert deployed.changes("Event")["n"].sort().to_list() == ([0, 1, 2, 3, 4] if commit else [0, 1, 3, 4])
    broker.produce(topic, [row(5, old)], partition=1)  # nothing is open now
    assert drain(deployed.deployment) == 1
    assert [each.partition(":")[0] for each in reasons(deployed)] == ["late"]
    deployed.close()
