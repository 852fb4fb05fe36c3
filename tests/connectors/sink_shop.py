"""A keyless and a keyed dataset with sinks, and the rows they should have."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.deployed import Deployed
from umbel.connectors import Webhook, sink, source
from umbel.datasets import Dataset, dataset, field, pipeline
from umbel.lib import inputs
from umbel.runtime.batch import drain
from umbel.runtime.deliveries import SinkDelivery, sinks

__owner__ = "shop@example.com"
SCRIPT = """
import sys, time
from pathlib import Path
from umbel.runtime.batch import drain
from umbel.runtime.deliveries import Deliveries
from umbel.runtime.deployment import Deployment

place = Deployment.at(Path(sys.argv[1]))
with Deliveries(place):
    while True:
        time.sleep(0.02 if drain(place, 1) else 0.1)
"""


def shop(large_to: Any, norse_to: Any, **how: Any) -> list[Any]:
    """Return two datasets that rows are logged to, and those with sinks that are made of them."""
    web = Webhook(name="web")

    @source(web.endpoint("sales"), disorder="14d", cdc="append")
    @dataset
    class Sale:
        user: int
        amount: float
        at: datetime

    @source(web.endpoint("users"), disorder="14d", cdc="debezium")
    @dataset
    class User:
        user: int = field(key=True)
        city: str
        at: datetime

    return [Sale, User, *drained(Sale, User, large_to, norse_to, **how)]


def drained(sales_of: Any, users_of: Any, large_to: Any, norse_to: Any, **how: Any) -> list[Any]:
    """Return a keyless and a keyed dataset with sinks."""

    @sink(large_to, **how)
    @dataset
    class Large:
        user: int
        amount: float
        at: datetime

        @pipeline
        @inputs(sales_of)
        def large(cls, sales: Dataset) -> Dataset:
            return sales.filter(lambda df: df["amount"] > 10)

    @sink(norse_to, **how)
    @dataset
    class Norse:
        user: int = field(key=True, erase_key=True)
        city: str
        at: datetime

        @pipeline
        @inputs(users_of)
        def norse(cls, users: Dataset) -> Dataset:
            return users.filter(lambda df: df["city"] != "Rome")

    return [Large, Norse]


class Shop:
    """A deployment with two sinks, and the rows that they should have."""

    def __init__(self, folder: Path, large_to: Any, norse_to: Any, **how: Any) -> None:
        self.folder, self.deployed = folder / "umbel", Deployed(folder / "umbel")
        self.deployed.commit(shop(large_to, norse_to, **how))
        self.amounts, self.cities = list[float](), dict[int, str]()
        self._deliveries, self._clock = dict[str, SinkDelivery](), 0

    def sell(self, *amounts: float) -> None:
        """Log sales."""
        self.deployed.log("sales", [{"user": 1, "amount": amount, "at": self._now()} for amount in amounts])
        self.amounts += [amount for amount in amounts if amount > 10]

    def move(self, user: int, city: str | None) -> None:
        """Log the move of a user, or its end."""
        row, at = {"user": user, "city": city or "", "at": self._now()}, self._clock * 1000 + 1_772_323_200_000
        sides = {"before": row, "after": None} if city is None else {"before": None, "after": row}
        self.deployed.log("users", [{"op": "d" if city is None else "u", **sides, "source": {"ts_ms": at}}])
        self.cities.pop(user, None)
        if city not in {None, "Rome"}:
            self.cities[user] = str(city)

    def drain(self) -> None:
        """Run batches."""
        drain(self.deployed.deployment)

    def delivery(self, name: str) -> SinkDelivery:
        """Return the delivery of a sink as a new worker makes it."""
        deployment = self.deployed.deployment
        (found,) = [each for each in sinks(deployment, deployment.catalog.revision()).values() if each.dataset == name]
        return SinkDelivery(deployment, found)

    def deliver(self) -> None:
        """Run batches, and deliver their changes."""
        self.drain()
        for name in ("Large", "Norse"):
            self._deliveries.setdefault(name, self.delivery(name)).step()

    def close(self) -> None:
        """Release files."""
        for each in self._deliveries.values():
            each.close()
        self.deployed.close()

    def _now(self) -> str:
        self._clock += 1
        return datetime.fromtimestamp(1_772_323_200 + self._clock).astimezone().isoformat()


def work(made: Shop, chance: random.Random) -> None:
    """Log some sales and moves."""
    for _ in range(chance.randint(1, 5)):
        made.sell(*[float(chance.randint(0, 1000)) for _ in range(chance.randint(1, 50))])
        made.move(chance.randint(1, 20), chance.choice(["Oslo", "Bergen", "Rome", None]))


class Worker:
    """A worker that runs batches and delivers, in a process of its own."""

    def __init__(self, made: Shop, environment: dict[str, str]) -> None:
        self._folder, self._log = made.folder, made.folder.with_name("worker.log")
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def mind(self) -> None:
        """Start it unless it runs."""
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as log:
                command = [sys.executable, "-c", SCRIPT, str(self._folder)]
                self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Endpoint:
    """An HTTP server that records requests, does nothing for a key it knows, and fails on demand.

    Args:
        fails: returns the status of a request before it is looked at and after it was done, None for none.
        pause: seconds between the parts of bodies that do not end; None for answers without a body.
        is_cut: whether answers are shorter than they say.
    """

    def __init__(
        self,
        fails: Callable[[], tuple[int | None, int | None]] = lambda: (None, None),
        pause: float | None = None,
        is_cut: bool = False,
    ) -> None:
        self.pause, self.is_cut = pause, is_cut
        self.fails, self.requests = fails, list[tuple[str, str, Any]]()
        self.done = dict[tuple[str, str], bytes]()
        self.conflicts = list[str]()
        self.guard = threading.Lock()

    def rows(self, path: str) -> list[Any]:
        """Return the messages that took effect."""
        return [row for (where, _), body in self.done.items() if where == path for row in json.loads(body)]

    @contextmanager
    def running(self) -> Iterator[str]:
        """Run it for a block; yields its address."""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                before, after = endpoint.fails()
                refused = None
                if before is None:
                    refused = endpoint.take(self.path, self.headers["Idempotency-Key"], body)
                self._answer(before or after or refused or 200)

            def _answer(self, status: int) -> None:
                if status == -1:
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_response(status)
                if endpoint.pause is None:
                    self.send_header("Content-Length", "100" if endpoint.is_cut else "0")
                self.end_headers()
                with suppress(OSError):  # the client has gone
                    while endpoint.pause is not None:
                        self.wfile.write(b"x" * 1000)
                        time.sleep(endpoint.pause)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()

    def take(self, path: str, key: str, body: bytes) -> int | None:
        """Record a request, and do it unless its key is known; return the status of one that is refused."""
        with self.guard:
            self.requests.append((path, key, json.loads(body)))
            known = self.done.setdefault((path, key), body)
            if known != body:
                self.conflicts.append(key)
        return None
