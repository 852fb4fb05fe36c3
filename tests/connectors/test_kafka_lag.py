"""The lag of a topic of a real Kafka broker, in messages and seconds."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.connectors.test_kafka_ingestion import entities, row
from tests.deployed import Deployed
from tests.servers.kafka import Broker
from umbel.connectors import Kafka
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


def test_how_long_messages_have_waited(broker: Broker) -> None:
    """No alert and no check said anything of a topic that was far behind."""
    broker.create("waiting", 2)
    plain = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "PLAIN", "bootstrap_servers": broker.address}
    reader, now = Kafka(name="k", **plain).topic("waiting").reader(Path()), datetime.now(UTC)
    position, planned = None, list[tuple[float, float]]()
    for number in range(6):
        for partition in (0, 1):
            broker.produce("waiting", [row(n, now) for n in range(1, 21)], partition)
        before = time.monotonic()
        _, position = reader.plan(position, 512 * 10)  # a quarter of what comes
        planned.append((before, time.monotonic()))
        assert reader.lag(position).rows == 30 * (number + 1)
        earliest, latest = planned[(number + 1) // 4]  # the oldest messages were found by that plan
        before, waited = time.monotonic(), reader.lag(position).seconds
        assert waited is not None
        assert before - latest <= waited <= time.monotonic() - earliest
    while reader.lag(position).rows:
        _, position = reader.plan(position, 1 << 20)
    assert reader.lag(position) == SourceLag(rows=0, seconds=0.0)
    broker.produce("waiting", [row(1, now)])
    before = time.monotonic()
    found, _ = reader.plan(position, 1 << 20)
    assert len(found) == 1
    assert 0 < (reader.lag(position).seconds or 0) < time.monotonic() - before


def test_ends_are_retained_within_bounds(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 8
    monkeypatch.setattr("umbel.connectors.kafka.source.MOST_ENDS", most)
    broker.create("bounds")
    plain = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "PLAIN", "bootstrap_servers": broker.address}
    reader = Kafka(name="k", **plain).topic("bounds").reader(Path())
    for _ in range(most + 20):
        broker.produce("bounds", [b"{}"])
        reader.plan(None, 512)
    assert len(reader._ends) <= most
    assert reader.lag(None).rows == most + 20
