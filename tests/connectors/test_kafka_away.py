"""A broker that dies while a batch is read: the other datasets go on, and its messages are read when it is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.connectors.away import NOW, drain_after_death, drain_until, note, values, warnings
from tests.connectors.test_kafka_ingestion import entities, row
from tests.deployed import Deployed, live
from tests.servers.kafka import Broker, started_or_missing
from umbel.connectors.kafka import fetching
from umbel.errors import Transient
from umbel.runtime.batch import MicroBatch, drain
from umbel.runtime.deployment import Deployment
from umbel.runtime.plans import BatchPlan
from umbel.state.port import Stamp

EVENTS = list(range(1, 100))


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    yield from started_or_missing(tmp_path_factory.mktemp("mortal"))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "UNANSWERED", 2.0)


def deployed_on(broker: Broker, topic: str, folder: Path) -> Deployed:
    """Return a deployment that has read a message of each partition, and has more to read of both sources."""
    broker.create(topic, 2)
    deployed = Deployed(folder / "umbel")
    deployed.commit([*entities(broker, topic), note()])
    for partition in (0, 1):
        broker.produce(topic, [row(partition + 1, NOW)], partition)
    assert drain(deployed.deployment)
    for partition in (0, 1):
        broker.produce(topic, [row(n, NOW) for n in EVENTS[2 + partition :: 2]], partition)
    deployed.log("notes", [{"n": 1, "at": NOW}])
    return deployed


def kill(broker: Broker) -> None:
    fetching.FETCHERS.close()  # they may have the messages already
    broker.kill()


def test_a_batch_goes_on_without_a_broker_that_died_while_it_was_read(mortal: Broker, tmp_path: Path) -> None:
    """All datasets waited for the broker."""
    deployed = deployed_on(mortal, "first", tmp_path)
    drain_after_death(deployed, lambda: kill(mortal))
    assert values(deployed, "Note") == [1]
    assert values(deployed, "Event") == [1, 2]
    (text,) = warnings(deployed)
    assert "goes on without 1 sources" in text
    assert "does not answer" in text
    mortal.start()
    deployed.log("notes", [{"n": 2, "at": NOW}])
    drain_until(deployed, "Event", EVENTS)
    assert values(deployed, "Note") == [1, 2]
    assert deployed.deployment.catalog.dead_letters("Event", 10) == []
    deployed.close()


def test_a_batch_that_is_run_again_waits_for_what_it_is_to_read(mortal: Broker, tmp_path: Path) -> None:
    """What it stored when it ran before may depend on these messages."""
    deployed = deployed_on(mortal, "again", tmp_path)
    plans = deployed.deployment.plans()
    number = plans.next(plans.last())
    kill(mortal)
    with pytest.raises(Transient, match="does not answer"):
        drain(deployed.deployment)
    assert values(deployed, "Note") == []
    mortal.start()
    drain(deployed.deployment)
    assert {each.dataset for each in plans.read(number).splits} == {"Event", "Note"}
    assert values(deployed, "Event") == EVENTS
    assert values(deployed, "Note") == [1]
    deployed.close()


@pytest.mark.nightly  # the same in the driver is above
def test_tasks_of_spark_go_on_without_a_broker_that_died(
    mortal: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    deployed, begin = deployed_on(mortal, "tasks", tmp_path), MicroBatch.begin

    def begun_after_death(deployment: Deployment, plan: BatchPlan, stamp: Stamp) -> MicroBatch:
        if "Event" in {each.dataset for each in plan.splits} and mortal.is_alive:
            mortal.kill()
        return begin(deployment, plan, stamp)

    monkeypatch.setattr(MicroBatch, "begin", begun_after_death)
    with live(deployed, spark, small=0) as caught_up:
        caught_up({"Note": 1, "Event": 2})
        monkeypatch.undo()
        assert values(deployed, "Event") == [1, 2]
        mortal.start()
        caught_up({"Event": 99})
    assert values(deployed, "Event") == EVENTS
    assert values(deployed, "Note") == [1]
    assert len(warnings(deployed)) == 1
    deployed.close()
