"""The worker and a database server are killed while rows change; in the end the datasets are what the tables are."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.connectors.shop_datasets import current, letters, orders
from tests.deployed import Deployed, wait_until
from umbel.connectors import source
from umbel.datasets import dataset

__owner__ = "shop@example.com"
SCRIPT = """
import sys, time
from pathlib import Path
from umbel.runtime.batch import drain
from umbel.runtime.deployment import Deployment

place = Deployment.at(Path(sys.argv[1]))
print("begun", flush=True)
while True:
    time.sleep(0.02 if drain(place, 1) else 0.1)
"""
COLUMNS = ["id", "note", "updated_at"]


class Worker:
    """A worker without Spark, in a process of its own."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._command, self._log, self._path = [sys.executable, "-c", SCRIPT, str(folder)], log.open("ab"), log
        self._process: subprocess.Popen[bytes] | None = None

    def mind(self) -> None:
        """Start it unless it runs."""
        if self._process is None or self._process.poll() is not None:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(self._command, env=environment, stdout=self._log, stderr=self._log)

    def begin(self) -> None:
        """Start it, which does not run, and wait until it reads."""
        assert self._process is None or self._process.poll() is not None
        before = self._path.stat().st_size
        self.mind()
        wait_until(lambda: b"begun" in self._path.read_bytes()[before:], self._path.read_text, 60)

    def kill(self, _: str) -> bool:
        """Kill it."""
        self.end()
        return True

    def end(self) -> None:
        """Kill it, and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def killed(worker: Worker, writer: threading.Thread, kills: int, chance: random.Random) -> None:
    """Kill a worker again and again while a thread writes, and wait for the end of the thread."""
    writer.start()
    for _ in range(kills):
        worker.begin()
        time.sleep(chance.uniform(0.0, 1.5))
        worker.kill("driver")
    writer.join()


@dataclass(frozen=True)
class Site:
    """A database server with the tables `orders`, `people` and `events`.

    Args:
        server: it can be killed, started, and runs statements.
        shop: the source.
        tables: the statements that make the tables, and the first rows of `people`.
        rows: returns a subquery of numbers `i` from one to another.
        now: the expression of the instant.
        read: returns the rows of a table.
        truncate: empties `people`, and counts its keys from 1 again.
    """

    server: Any
    shop: Any
    tables: Callable[[int], Sequence[str]]
    rows: Callable[[int], str]
    now: str
    read: Callable[[str], list[Any]]
    truncate: str = "TRUNCATE people"


def definitions(shop: Any) -> list[Any]:
    """Return a dataset for each way of reading: by changes and by a cursor, with keys and without."""
    people = orders(shop, name="People", table="people", cdc="native", disorder="1d")

    @source(shop.table("events", "n"), disorder="1d", every="1s", cdc="append")
    @dataset
    class Events:
        n: int
        at: datetime

    @source(shop.table("events"), disorder="1d", cdc="native")
    @dataset
    class Copies:
        n: int
        at: datetime

    return [people, orders(shop, disorder="20s"), Events, Copies]


def written(site: Site, chance: random.Random, rows: int, per_statement: int) -> None:
    """Insert rows, and meanwhile change and delete some; what a kill undoes is not there in the end."""
    new = site.rows(per_statement)
    for _ in range(0, rows, 3 * per_statement):
        first = chance.randrange(rows)
        statements = (
            f"INSERT INTO orders(note) SELECT concat('n', i) FROM {new}",
            f"INSERT INTO people(note) SELECT concat('n', i) FROM {new}",
            f"INSERT INTO events(at) SELECT {site.now} FROM {new}",
            f"UPDATE orders SET note = 'changed', updated_at = {site.now} WHERE id BETWEEN {first} AND {first + 100}",
            f"UPDATE people SET note = 'changed', updated_at = {site.now} WHERE id BETWEEN {first} AND {first + 100}",
            f"DELETE FROM people WHERE id BETWEEN {first + 50} AND {first + 80}",
            f"UPDATE people SET id = -id WHERE id BETWEEN {first + 200} AND {first + 210}",
        )
        for each in (*statements, site.truncate) if chance.random() < 0.2 else statements:
            with contextlib.suppress(Exception):
                site.server.run(each)
                continue
            time.sleep(0.2)


def run(folder: Path, site: Site, rows: int, kills: int, make: Callable[..., Any], seed: int) -> None:
    """Write rows while worker and server are killed at random instants; compare at the end."""
    chance, server = random.Random(seed), site.server
    server.run(*site.tables(rows // 4))
    deployed = Deployed(folder / "umbel")
    deployed.commit(definitions(site.shop))
    worker = make(folder / "umbel", folder / "worker.log")
    writer = threading.Thread(target=written, args=(site, random.Random(seed + 1), rows, 1000))
    writer.start()
    try:
        for victim in chance.sample(["worker", "server"] * (kills // 2), kills):
            worker.mind()
            time.sleep(chance.uniform(0.2, 3.0))
            if victim == "server":
                server.kill()
                time.sleep(chance.uniform(0.0, 1.0))
                server.start()
            else:
                worker.kill(chance.choice(["driver", "jvm", "python"]))
        writer.join()

        def is_done() -> bool:
            worker.mind()
            return differences(deployed, site) == []

        wait_until(is_done, lambda: (differences(deployed, site), (folder / "worker.log").read_text()[-3000:]), 300)
        reasons = [each.reason for each in letters(deployed)]
        assert reasons == [], reasons
    finally:
        worker.end()
        writer.join()
        deployed.close()


def differences(deployed: Deployed, site: Site) -> list[tuple[str, int, int]]:
    """Return the tables that differ from their datasets, with the number of rows of both."""
    found = []
    for name in ("People", "Orders"):
        table = site.read(f"SELECT id, note, updated_at FROM {name.lower()} ORDER BY id")
        rows = sorted(current(deployed.changes(name), "id", datetime(9000, 1, 1, tzinfo=UTC)).select(COLUMNS).rows())
        found += [(name, len(table), len(rows))] if table != rows else []
    table = site.read("SELECT n FROM events ORDER BY n")
    for name in ("Events", "Copies"):
        rows = sorted(deployed.changes(name).select("n").rows())
        found += [(name, len(table), len(rows))] if table != rows else []
    return found
