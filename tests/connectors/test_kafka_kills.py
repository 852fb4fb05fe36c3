"""Rows of a topic are ingested while worker and broker are killed again and again; the dataset equals the topic, row for row.

So does the topic of its sink."""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed, wait_until
from tests.seeds import chance_of_seed
from tests.servers.kafka import Broker, started_or_missing
from umbel.connectors import Kafka, sink, source
from umbel.connectors.kafka.offset_ranges import PARTITION_SHIFT
from umbel.datasets import Dataset, dataset, pipeline
from umbel.expr import col
from umbel.lib import inputs
from umbel.runtime.sources import SOURCE_SHIFT

__owner__ = "tests@example.com"
PARTITIONS = 3
START = 1_772_000_000


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that may be killed: its data are in memory where that is, for its disk is not what is tested."""
    yield from started_or_missing(tmp_path_factory.mktemp("killed"))


class Worker:
    """`umbel work` in a process of its own, started again whenever it is found dead."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._command = [sys.executable, "-m", "umbel.cli.main", "work", "--dir", str(folder), "-w", "1"]
        self._log, self._process = log.open("ab"), None

    _process: subprocess.Popen[bytes] | None

    def mind(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.kill()
            self._process = subprocess.Popen(
                self._command, stdout=self._log, stderr=self._log, env=dict(os.environ), start_new_session=True
            )

    def kill(self) -> None:
        """Kill the driver, its JVM and Spark's Python workers, as the end of a machine does."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Feed:
    """Produces rows in a thread, wave by wave, over the deaths of the broker; each row exactly once."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._producer = broker.producer(
            **{"enable.idempotence": True, "message.timeout.ms": 0, "partitioner": "random"}
        )
        self._topic, self._waves = topic, queue.Queue[range | None]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, rows: range) -> None:
        self._waves.put(rows)

    def finish(self) -> None:
        """Wait until all rows are in the topic."""
        self._waves.put(None)
        self._thread.join(180)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while (rows := self._waves.get()) is not None:
            for n in rows:
                self._producer.produce(self._topic, row(n), partition=n % PARTITIONS)
                if n % 1000 == 999:
                    self._producer.poll(0)
            self._producer.flush(180)


def row(n: int) -> bytes:
    return json.dumps({"n": n, "name": f"row {n}", "at": START + n // 100}).encode()


def events(broker: Broker, topic: str) -> list[Any]:
    cluster = Kafka(
        name="killed", bootstrap_servers=broker.address, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN"
    )

    @source(cluster.topic(topic), disorder="14d", cdc="append")
    @dataset
    class Event:
        n: int
        name: str
        at: datetime

    @sink(cluster.topic("chosen"), cdc="debezium")
    @dataset
    class Chosen:
        n: int
        name: str
        at: datetime

        @pipeline
        @inputs(Event)
        def chosen(cls, rows: Dataset) -> Dataset:
            return rows.filter(col("n") % 5 == 0)

    return [Event, Chosen]


def run(broker: Broker, folder: Path, rows: int, victims: list[str], chance: random.Random) -> None:
    """Produce a wave for each victim and kill it at some instant; compare at the end."""
    broker.create("events", PARTITIONS)
    deployed = Deployed(folder / "umbel", budget=1 << 20)
    broker.create("chosen", PARTITIONS)
    deployed.commit(events(broker, "events"))
    worker, feed = Worker(folder / "umbel", folder / "worker.log"), Feed(broker, "events")
    plans = folder / "umbel" / "plans"

    def last_plan() -> str:
        worker.mind()
        return max((path.name for path in plans.glob("*.json")), default="")

    def is_done() -> bool:
        worker.mind()
        return deployed.taken().get("Event", 0) == rows

    def state() -> Any:
        return deployed.taken(), (folder / "worker.log").read_text(errors="replace")[-4000:]

    try:
        for wave, victim in enumerate(victims):
            before = last_plan()
            feed.put(range(rows * wave // len(victims), rows * (wave + 1) // len(victims)))
            if victim == "worker":
                wait_until(lambda: last_plan() > before, state)  # noqa: B023
            time.sleep(chance.uniform(0, 1.0))  # any instant of the batch, or of the fetching
            worker.kill() if victim == "worker" else broker.kill()
            broker.start() if victim == "broker" else worker.mind()
        feed.finish()
        wait_until(is_done, state)
        compare(deployed, broker)
        chosen = [*range(0, rows, 5)]
        wait_until(lambda: len(sent(broker)) >= len(chosen), lambda: (len(sent(broker)), state()))
        assert sent(broker) == chosen
    finally:
        worker.kill()
        deployed.close()


def compare(deployed: Deployed, broker: Broker) -> None:
    """Compare the dataset with the topic, by partition and offset."""
    found = deployed.changes("Event")
    assert found["_weight"].unique().to_list() == [1]
    numbers = found["_seq"].to_list()
    assert {number >> SOURCE_SHIFT for number in numbers} == {0}
    ours = {
        (number >> PARTITION_SHIFT, number & ((1 << PARTITION_SHIFT) - 1)): (n, name, at)
        for number, n, name, at in zip(numbers, found["n"], found["name"], found["at"], strict=True)
    }
    assert len(ours) == found.height
    messages = [(each.partition(), each.offset(), json.loads(each.value())) for each in broker.consume("events")]
    theirs = {(part, at): (row["n"], row["name"], datetime.fromtimestamp(row["at"], UTC)) for part, at, row in messages}
    assert ours == theirs
    assert not deployed.deployment.catalog.count_dead()


def sent(broker: Broker) -> list[int]:
    """Return what the sink has, sorted."""
    return sorted(json.loads(each.value())["after"]["n"] for each in broker.consume("chosen"))


def test_two_kills_of_each(broker: Broker, tmp_path: Path) -> None:
    chance, victims = chance_of_seed(), ["broker", "worker"] * 2
    chance.shuffle(victims)
    run(broker, tmp_path, 16_000, victims, chance)


@pytest.mark.nightly
def test_forty_kills(broker: Broker, tmp_path: Path) -> None:
    chance, victims = chance_of_seed(), ["broker"] * 25 + ["worker"] * 15
    chance.shuffle(victims)
    run(broker, tmp_path, 1_000_000, victims, chance)
