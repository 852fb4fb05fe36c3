"""The lag of a topic of a real Kafka broker, in messages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.connectors.test_kafka_ingestion import entities, row
from tests.deployed import Deployed
from tests.servers.kafka import Broker
from umbel.connectors.lag import SourceLag
from umbel.runtime.batch import drain

TOPIC = "behind"


def test_messages_are_behind_until_they_are_planned(broker: Broker, tmp_path: Path) -> None:
    broker.create(TOPIC)
    deployed, now = Deployed(tmp_path / "umbel", budget=512 * 30), datetime.now(UTC)
    deployed.commit(entities(broker, TOPIC))
    (source,) = deployed.deployment._sources()[1]
    assert source.lag(None) == SourceLag()
    broker.produce(TOPIC, [row(n, now) for n in range(1, 101)])
    plans, lags = deployed.deployment.plans(), list[int | None]()
    for number in range(5):
        before = plans.read(number).positions.get(source.key) if number else None
        if plans.next(number) == number:
            break
        lags.append(source.lag(before).rows)
    assert lags == [100, 70, 40, 10]
    assert source.lag(plans.read(4).positions[source.key]).rows == 0
    drain(deployed.deployment)
    deployed.close()
