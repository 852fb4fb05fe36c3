"""A topic passes a configuration into a topic and a Delta table while the worker is killed.

Both have what `umbel transform` writes, each record once.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tests.connectors.sink_shop import SCRIPT
from tests.deployed import Deployed, wait_until
from tests.s3server import S3Server
from tests.seeds import new_seed
from tests.servers.kafka import Broker
from umbel.connectors import S3, Kafka, sink, source
from umbel.connectors.delta_tables import options_of
from umbel.datasets import Dataset, dataset, pipeline
from umbel.lib import inputs
from umbel.transform import loads
from umbel.transform.values import dump

__owner__ = "tests@example.com"
START = 1_772_000_000
BUCKET = "transformed"
CONFIG = """
source_field: page.url
target_field: product
transformations:
  - {name: regex_extract, pattern: '/p/(\\d+)', group: 1}
  - {name: cast, type: int}
---
source_field: kind
target_field: kind
transformations:
  - {name: custom_code, code: 'return "-".join(sorted(source_field.lower().split(" ")))'}
---
source_field: kind
target_field: short
transformations:
  - {name: custom_code, code: 'return source_field.lower()[0:3]'}
---
source_field: price
target_field: price
transformations:
  - {name: cast, type: float, on_error: drop}
---
source_field: robot
transformations:
  - {name: custom_code, code: return not source_field}
  - {name: filter}
---
source_field: at
target_field: at
transformations:
  - {name: cast, type: datetime}
"""
FIELDS = ("product", "kind", "short", "price", "at")


def line(n: int) -> bytes:
    """Return the record of a number: some are broken, of another type, dropped or of robots."""
    if n % 43 == 3:
        return b'{"kind": "broken'
    kind: Any = n if n % 41 == 5 else f"Zeta Älpha {n}" if n % 7 == 0 else "Zeta Alpha"
    price: Any = "free" if n % 41 == 7 else n / 8 if n % 3 else f"{n}.5"
    page = {"url": f"https://shop.example/p/{n}?c=1"}
    return json.dumps({"page": page, "kind": kind, "price": price, "robot": n % 41 == 9, "at": START + n}).encode()


def definitions(cluster: Any, lake: Any) -> list[Any]:
    @source(cluster.topic("raw"), disorder="30d", cdc="append", transform=loads(CONFIG, "visits.yaml"))
    @dataset
    class Visit:
        product: int
        kind: str
        short: str
        price: float
        at: datetime

    @sink(cluster.topic("clean"), cdc="debezium")
    @dataset
    class Sent:
        product: int
        kind: str
        short: str
        price: float
        at: datetime

        @pipeline
        @inputs(Visit)
        def sent(cls, rows: Dataset) -> Dataset:
            return rows.filter(lambda df: df["product"] >= 0)

    @sink(lake, how="incremental")
    @dataset
    class Stored:
        product: int
        kind: str
        short: str
        price: float
        at: datetime

        @pipeline
        @inputs(Visit)
        def stored(cls, rows: Dataset) -> Dataset:
            return rows.filter(lambda df: df["product"] >= 0)

    return [Visit, Sent, Stored]


def by_the_command(folder: Path, lines: list[bytes]) -> list[bytes]:
    """Return what `umbel transform` writes, sorted."""
    (folder / "visits.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "umbel", "transform", "-q", "-c", str(folder / "visits.yaml")]
    found = subprocess.run(command, input=b"\n".join(lines), stdout=subprocess.PIPE, check=True)
    return sorted(found.stdout.split(b"\n")[:-1])


def in_topic(broker: Broker) -> list[bytes]:
    """Return the records of the topic as `umbel transform` writes them, sorted."""
    rows = [json.loads(each.value())["after"] for each in broker.consume("clean")]
    return sorted(dump({name: row[name] for name in FIELDS}) for row in rows)


class Table:
    """The Delta table.

    Args:
        server: of its bucket.
    """

    def __init__(self, server: S3Server) -> None:
        server.bucket(BUCKET)
        self._options = {**options_of(server.environment), **server.environment}

    def lines(self) -> list[bytes]:
        """Return its rows as `umbel transform` writes them, sorted."""
        try:
            table = DeltaTable(f"s3://{BUCKET}/visits", storage_options=self._options)
        except TableNotFoundError:
            return []
        rows = table.to_pyarrow_table().to_pylist()
        assert {row["_weight"] for row in rows} <= {1}
        return sorted(dump({name: row[name] for name in FIELDS}) for row in rows)


class Worker:
    """A worker that runs batches and delivers, in a process of its own, started again whenever it is found dead."""

    def __init__(self, folder: Path, log: Path, environment: dict[str, str]) -> None:
        self._command, self._log = [sys.executable, "-c", SCRIPT, str(folder)], log
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._environment = {**os.environ, **path, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def mind(self) -> None:
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    found = Deployed(tmp_path / "umbel", budget=1 << 17)
    yield found
    found.close()


def check(
    broker: Broker, server: S3Server, deployed: Deployed, folder: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("raw", "clean"):
        broker.create(name)
    chance, table = random.Random(new_seed()), Table(server)
    cluster = Kafka(name="bus", bootstrap_servers=broker.address, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
    lake = S3(name="lake").bucket(BUCKET, prefix="visits", format="delta")
    deployed.commit(definitions(cluster, lake))
    worker, producer, lines = Worker(folder / "umbel", folder / "log", server.environment), broker.producer(), []
    try:
        for wave in range(kills):
            worker.mind()
            new = [line(n) for n in range(wave * 1000, (wave + 1) * 1000)]
            for each in new:
                producer.produce("raw", each)
            producer.flush(60)
            lines += new
            time.sleep(chance.uniform(0, 2.0))  # any instant of a batch or a delivery
            worker.kill()
        expected = by_the_command(folder, lines)

        def is_done() -> bool:
            worker.mind()
            return len(in_topic(broker)) >= len(expected) and len(table.lines()) >= len(expected)

        def state() -> object:
            return len(expected), len(in_topic(broker)), len(table.lines()), (folder / "log").read_text()[-3000:]

        wait_until(is_done, state, 300)
        assert in_topic(broker) == expected
        assert table.lines() == expected
    finally:
        worker.kill()
    letters = deployed.deployment.catalog.dead_letters("Visit", 100_000)
    assert len(letters) == sum(n % 43 == 3 or n % 41 == 5 for n in range(len(lines)))


@pytest.mark.parametrize("kills", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_kills(
    broker: Broker, s3_server: S3Server, deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    check(broker, s3_server, deployed, tmp_path, monkeypatch, kills)
