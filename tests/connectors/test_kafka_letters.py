"""Dead letters of topics: which records they have, and what a replay makes of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.test_kafka_ingestion import row
from tests.deployed import Deployed
from tests.servers.kafka import Broker
from umbel.catalog.replays import LetterFilter
from umbel.connectors import Kafka, source
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
