"""Dead letters of topics: which records they have, and what a replay makes of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.test_kafka_ingestion import row
from tests.deployed import Deployed, wait_until
from tests.servers.kafka import Broker
from umbel.catalog.replays import LetterFilter
from umbel.connectors import Kafka, source
from umbel.connectors.kafka.clients import Cluster
from umbel.datasets import dataset
from umbel.runtime import intake
from umbel.runtime.batch import drain
from umbel.runtime.replays import replay_letters

__owner__ = "tests@example.com"
NOW = datetime.now(UTC).replace(microsecond=0)
LETTERS = LetterFilter(dataset="Event")


def event(broker: Broker, topic: str) -> Any:
    cluster = Kafka(name="k", bootstrap_servers=broker.address, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")

    @source(cluster.topic(topic), disorder="1d", cdc="append")
    @dataset
    class Event:
        n: int
        at: datetime

    return Event


@pytest.fixture
def deployed(tmp_path: Path) -> Any:
    found = Deployed(tmp_path / "umbel")
    yield found
    found.close()


def test_records_behind_the_id_of_a_schema_are_replayed(
    broker: Broker, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("behind_ids")
    deployed.commit([event(broker, "behind_ids")])
    soon = NOW + timedelta(hours=30)
    broker.produce("behind_ids", [b"\0\0\0\0\7" + row(n, soon) for n in range(3)])
    drain(deployed.deployment)
    assert len(deployed.deployment.catalog.dead_letters("Event")) == 3
    monkeypatch.setattr(intake, "EPOCH", intake.EPOCH + timedelta(days=2))  # the latest event time that is accepted
    assert replay_letters(deployed.deployment, LETTERS).count == 3
    drain(deployed.deployment)
    assert sorted(deployed.changes("Event")["n"]) == [0, 1, 2]
    assert len(deployed.deployment.catalog.dead_letters("Event")) == 3


def test_letters_of_a_topic_that_was_created_again_are_others(
    broker: Broker, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records of both have the same offsets."""
    monkeypatch.setattr(Cluster.topic, "__defaults__", (0.0,))
    broker.create("again")
    deployed.commit([event(broker, "again")])
    found: list[Any] = []

    def letters() -> list[Any]:
        drain(deployed.deployment)
        found[:] = deployed.deployment.catalog.dead_letters("Event")
        return [json.loads(each.raw)["n"] for each in found if b'"n"' in each.raw]

    for name in ("old", "new"):
        broker.produce("again", [json.dumps({"n": f"{name} {n}", "at": NOW.isoformat()}).encode() for n in range(3)])
        wait_until(lambda name=name: f"{name} 2" in letters(), letters, within=60)
        if name == "old":
            broker.delete("again")
            broker.create("again")
    assert sorted(letters()) == [f"{name} {n}" for name in ("new", "old") for n in range(3)]
    assert deployed.deployment.catalog.counts()["Event", "dead"] == len(found) == 7  # and that the first one is gone
