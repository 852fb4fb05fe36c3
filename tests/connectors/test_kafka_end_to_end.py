"""Kafka in and out of a real server and worker: commit over HTTP, a secret, rows, dead letters, a broker that is down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.deployed import wait_until
from tests.running_files import files_with
from tests.scenarios.server import ServerProcess
from tests.servers.kafka import PASSWORD, USER, Broker, started_or_missing
from umbel import Client
from umbel.connectors import Kafka, Webhook, sink, source
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.definitions.secret import Secret
from umbel.dtypes import Continuous
from umbel.lib import inputs

__owner__ = "tests@example.com"


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that the test stops and starts."""
    yield from started_or_missing(tmp_path_factory.mktemp("stopped"))


def entities(broker: Broker) -> list[Any]:
    """Return datasets that a topic feeds, appended to and as Debezium's envelopes, and one that a webhook feeds."""
    password = Secret(arn="kafka-login")["password"]
    cluster = Kafka(
        name="shop",
        bootstrap_servers=broker.sasl_address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=USER,
        sasl_plain_password=password,
    )

    @source(cluster.topic("sales"), disorder="14d", cdc="append")
    @dataset
    class Sale:
        user: int
        amount: int
        at: datetime

    @source(cluster.topic("users"), disorder="14d", cdc="debezium")
    @dataset(index=True)
    class User:
        user: int = field(key=True)
        city: str
        at: datetime

    @source(Webhook(name="web").endpoint("clicks"), disorder="14d", cdc="append")
    @dataset
    class Click:
        user: int
        at: datetime

    return [Sale, User, Click, *derived(cluster, Sale, Click)]


def derived(cluster: Kafka, sales_of: Any, clicks_of: Any) -> list[Any]:
    """Return a dataset with a sink, and counts."""

    @sink(cluster.topic("large"), cdc="debezium")
    @dataset
    class Large:
        user: int
        amount: int
        at: datetime

        @pipeline
        @inputs(sales_of)
        def large(cls, sales: Dataset) -> Dataset:
            return sales.filter(lambda df: df["amount"] > 100)

    @dataset(index=True)
    class Clicks:
        user: int = field(key=True)
        count: int
        at: datetime

        @pipeline
        @inputs(clicks_of)
        def counted(cls, clicks: Dataset) -> Dataset:
            return clicks.groupby("user").aggregate(count=Count(window=Continuous("forever")))

    return [Large, Clicks]


def sale(amount: Any) -> bytes:
    return json.dumps({"user": 1, "amount": amount, "at": "2026-03-01T00:00:00Z"}).encode()


def envelope(op: str, city: str, day: int) -> tuple[bytes, bytes]:
    row = {"user": 1, "city": city, "at": f"2026-03-{day:02}T00:00:00Z"}
    millis = int(datetime.fromisoformat(row["at"]).timestamp() * 1000)
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return b"1", json.dumps({"payload": {"op": op, **sides, "source": {"ts_ms": millis}}}).encode()


class Shop:
    """A server, a worker, and a client."""

    def __init__(self, folder: Path) -> None:
        self.server, self._log = ServerProcess(folder), folder / "worker.log"
        self.server.wait_until_ready()
        self.client = Client(f"http://localhost:{self.server.port}")
        command = [sys.executable, "-m", "umbel.cli.main", "work", "--dir", str(folder / "umbel"), "-w", "1"]
        with self._log.open("ab") as log:
            self._worker = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))

    def counts(self, dataset: str) -> dict[str, int]:
        """Return the counts of a dataset, from the metrics."""
        found = {}
        for line in self.server.http.get("/api/v1/metrics").text.splitlines():
            if line.startswith(f'umbel_dataset_rows{{dataset="{dataset}",'):
                found[line.split('outcome="')[1].split('"')[0]] = int(float(line.rsplit(" ", 1)[1]))
        return found

    def wait(self, dataset: str, outcome: str, count: int) -> None:
        wait_until(lambda: self.counts(dataset).get(outcome) == count, lambda: (self.counts(dataset), self.said))

    @property
    def said(self) -> str:
        return self._log.read_text()[-4000:]

    def stop(self) -> None:
        self.client.close()
        self._worker.terminate()
        try:
            self._worker.wait(30)
        except subprocess.TimeoutExpired:
            self._worker.kill()
        self.server.stop()


def test_everything(broker: Broker, tmp_path: Path) -> None:
    for topic in ("sales", "users", "large"):
        broker.create(topic)
    broker.produce("sales", [sale(50), sale(150), b"{broken", sale("much"), sale(250)])
    broker.produce(
        "users", [envelope("c", "Oslo", 1), envelope("u", "Bergen", 3), envelope("d", "Bergen", 5), (b"1", None)]
    )
    permit(broker)
    shop = Shop(tmp_path)
    try:
        shop.client.add_secret("kafka-login", json.dumps({"password": PASSWORD}))
        datasets = entities(broker)
        shop.client.commit("kafka", datasets=datasets)
        shop.wait("Sale", "rows", 3)
        shop.wait("Sale", "dead", 2)
        http = shop.server.http  # rows are counted a moment before their revision serves
        wait_until(lambda: http.get("/api/v1/branch/status").json()["state"] == "serving", lambda: shop.said)
        letters = http.get("/api/v1/dataset/Sale/dead_letters").json()
        assert sorted(each["position"] for each in letters) == ["sales[0]@2", "sales[0]@3"]
        shop.wait("User", "tombstones", 1)
        at = pd.Series(pd.to_datetime(["2026-03-02", "2026-03-04", "2026-03-06"], utc=True))
        found, is_found = shop.client.lookup(datasets[1], pd.DataFrame({"user": [1] * 3}), timestamps=at)
        assert found["city"].tolist()[:2] == ["Oslo", "Bergen"]
        assert is_found.tolist() == [True, True, False]
        wait_until(lambda: amounts(broker) == [150, 250], lambda: shop.said)
        others_go_on(broker, shop)
        assert files_with(PASSWORD, tmp_path / "umbel") == []
        assert PASSWORD not in shop.said
    finally:
        shop.stop()


def permit(broker: Broker) -> None:
    """Grant what docs/howto/kafka.md says, and nothing else."""
    for topic in ("sales", "users"):
        broker.grant("TOPIC", topic, "DESCRIBE", "READ")
    broker.grant("TOPIC", "large", "DESCRIBE", "READ", "WRITE")
    broker.grant("TRANSACTIONAL_ID", "umbel-", "DESCRIBE", "WRITE", is_prefix=True)
    broker.grant("GROUP", "umbel-", "DESCRIBE", "READ", is_prefix=True)


def others_go_on(broker: Broker, shop: Shop) -> None:
    """While the broker is down the webhook's rows are processed; the topics go on when it is back."""
    broker.kill()
    for number in range(1, 4):
        shop.client.log("web", "clicks", pd.DataFrame({"user": [7], "at": ["2026-03-01"]}))
        shop.wait("Click", "rows", number)
    wait_until(lambda: "does not answer" in shop.said, lambda: shop.said)
    broker.start()
    broker.produce("sales", [sale(350)])
    shop.wait("Sale", "rows", 4)
    wait_until(lambda: amounts(broker) == [150, 250, 350], lambda: shop.said)


def amounts(broker: Broker) -> list[int]:
    """Return what the sink has sent."""
    return [json.loads(each.value())["after"]["amount"] for each in broker.consume("large")]
