"""A version is raised under load: every answer is of the old version or of the new one, right for it, and never a default."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deployed import Deployed, wait_until
from tests.scenarios.server import HOST, ServerProcess
from umbel.api.commit import check_commit
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Sum, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.lib import inputs
from umbel.runtime.commit import commit
from umbel.runtime.switching import branch_status

__owner__ = "tests@example.com"
webhook = Webhook(name="web")
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
USERS = 5
MISSING = -1
WORKER = """
import sys
from pathlib import Path
import umbel.runtime.batch, umbel.runtime.deployment, umbel.runtime.history_slices, umbel.spark.backfill_step
from umbel.runtime.deployment import Deployment
from umbel.spark.job import LiveJob
from umbel.spark.session import Settings, running

umbel.spark.backfill_step.ROWS_AT_ONCE, umbel.spark.backfill_step.LIVE_ROWS = int(sys.argv[2]), 2 * int(sys.argv[2])
umbel.runtime.history_slices.PART_ROWS = umbel.runtime.history_slices.SLICE_ROWS = int(sys.argv[2])
umbel.runtime.deployment.RETAINED_FOR = 2.0
umbel.runtime.batch.MicroBatch.forget_removed.__defaults__ = (2.0,)
place = Deployment.at(Path(sys.argv[1]), budget=int(sys.argv[3]))
with running(Settings(place.directory, slots=2, memory="600m")) as session:
    LiveJob(place, session).start().awaitTermination()
"""


@source(webhook.endpoint("sales"), disorder="30d", cdc="append")
@dataset
class Sale:
    user: int
    amount: int
    at: datetime


def version(number: int, factor: int) -> Any:
    """Return the definitions with totals of a version: the sum of amounts times a factor."""

    @index
    @dataset(version=number)
    class Total:
        user: int = field(key=True)
        total: int
        sales: int
        at: datetime

        @pipeline
        @inputs(Sale)
        def made(cls, sales):
            scaled = sales.assign(amount=(col("amount") * factor).astype(int))
            return scaled.groupby("user").aggregate(
                total=Sum(of="amount", window=Continuous("forever")), sales=Count(window=Continuous("forever"))
            )

    @featureset
    class User:
        user: int
        total: int = F(Total.total, default=MISSING)
        sales: int = F(Total.sales, default=MISSING)

    return check_commit([Sale, Total], [User])


class Worker:
    """The live job in a process of its own, whose backfills go by small steps."""

    def __init__(self, folder: Path, rows: int, budget: int) -> None:
        self._command = [sys.executable, "-c", WORKER, str(folder / "umbel"), str(rows), str(budget)]
        self._log = folder / "worker.log"
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


class Asker(threading.Thread):
    """Queries the totals of all users over one connection, so of one server process, until stopped."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port, self.stopped = port, threading.Event()
        self.answers: list[tuple[list[int], list[int]]] = []
        self.failures: list[str] = []

    def run(self) -> None:
        users = list(range(USERS))
        body = {"inputs": ["User.user"], "outputs": ["User.total", "User.sales"], "data": {"User.user": users}}
        with httpx.Client(base_url=f"http://{HOST}:{self._port}", timeout=60) as http:
            while not self.stopped.is_set():
                found = http.post("/api/v1/query", json=body)
                if found.status_code != 200:
                    self.failures.append(found.text)
                    continue
                report = found.json()
                answer = (report["User.total"], report["User.sales"])
                if not self.answers or self.answers[-1] != answer:
                    self.answers.append(answer)
                time.sleep(0.002)


class Shop:
    """A deployment with sales, two server processes and a worker."""

    def __init__(self, folder: Path, rows: int, payloads: int, step: int) -> None:
        self.deployed = Deployed(folder / "umbel")
        commit(self.deployed.deployment, version(1, 1))
        self.sales = [0] * USERS
        self.place = self.deployed.deployment
        self.worker = Worker(folder, step, budget=1)  # a batch for each payload
        self.server = ServerProcess(folder, "--servers", "2")
        for _ in range(payloads):
            self.log(rows)
        self.wait(self.is_read)

    def log(self, rows: int) -> None:
        """Log sales of 1 of all users in turn; each payload fills a place of its own in the index of the log."""
        first = sum(self.sales)
        found = []
        for number in range(first, first + rows):
            self.sales[number % USERS] += 1
            found.append({"user": number % USERS, "amount": 1, "at": NOON + timedelta(seconds=number)})
        import orjson

        self.deployed.log_bytes("sales", orjson.dumps(found) + b" " * 270_000, rows)

    def is_read(self) -> bool:
        return self.deployed.taken().get("Sale", 0) >= sum(self.sales)

    def status(self) -> dict[str, Any]:
        return branch_status(self.place, "main")

    def serves(self) -> bool:
        return self.status()["state"] == "serving"

    def wait(self, condition: Any, within: float = 600) -> None:
        wait_until(condition, lambda: (self.status(), self.deployed.taken(), self.worker.said), within)

    def steps(self) -> int:
        return self.place.backfill_state().step

    def close(self) -> None:
        self.worker.kill()
        self.server.stop()
        self.deployed.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(tmp_path, rows=20, payloads=14, step=20)
    yield opened
    opened.close()


def owners(shop: Shop) -> set[str]:
    return {owner for shard in range(shop.place.shards) for owner in shop.place.store.state_ids(shard)}


def check(asker: Asker, factors: list[int]) -> None:
    """Check that an asker saw correct values of versions only, in their order, and never fewer sales than before."""
    assert asker.failures == []
    assert asker.answers
    seen = []
    last = [0] * USERS
    for totals, sales in asker.answers:
        assert MISSING not in totals + sales, asker.answers
        (factor,) = {total // count for total, count in zip(totals, sales, strict=True)}
        assert [count * factor for count in sales] == totals
        assert all(now >= before for now, before in zip(sales, last, strict=True)), asker.answers
        seen.append(factor)
        last = sales
    assert [factor for factor, before in zip(seen, [None, *seen], strict=False) if factor != before] == factors


@pytest.mark.nightly  # several minutes on a busy machine
def test_a_raise_under_load_with_a_worker_killed_in_the_middle(shop: Shop) -> None:
    shop.server.wait_until_ready()
    first = shop.place.graph(1).outputs["Total"].state_id
    askers = [Asker(shop.server.port) for _ in range(4)]
    for each in askers:
        each.start()
    report = commit(shop.place, version(2, 1000))
    assert (report["serving"], report["status"][0]["state"]) == (1, "backfilling")
    assert "version 2 of Total is being backfilled" in report["status"][0]["message"]

    shop.wait(lambda: shop.steps() >= 2)
    shop.worker.kill()
    done = shop.steps()
    assert not shop.serves()
    shop.log(20)  # nobody reads it yet
    shop.worker.start()
    share = shop.status()["share"]
    shop.wait(lambda: shop.steps() > done or shop.serves())  # it goes on where it was
    assert shop.status()["share"] >= share

    # the old version is fed while the new one catches up, or both are once it has
    shop.wait(shop.is_read)
    expected = sum(shop.sales)
    shop.wait(lambda: all(each.answers and sum(each.answers[-1][1]) == expected for each in askers))
    shop.wait(shop.serves)
    shop.wait(lambda: all(each.answers[-1][0][0] == each.answers[-1][1][0] * 1000 for each in askers))
    shop.log(5)
    shop.wait(lambda: all(sum(each.answers[-1][1]) == expected + 5 for each in askers))
    for each in askers:
        each.stopped.set()
        each.join(300)
        check(each, [1, 1000])

    # what served before is deleted in the end
    assert first not in {node.state_id for node in shop.place.graph(shop.place.catalog.latest()).nodes}
    shop.wait(lambda: first not in owners(shop))


@pytest.mark.nightly
def test_raises_one_after_another_with_kills(shop: Shop) -> None:
    shop.server.wait_until_ready()
    askers = [Asker(shop.server.port) for _ in range(2)]
    for each in askers:
        each.start()
    for number in range(2, 6):
        commit(shop.place, version(number, number))
        shop.wait(lambda: shop.steps() >= 1 or shop.serves())
        shop.worker.kill()
        shop.worker.start()
        shop.log(5)
        if number == 3:  # this one is never served
            commit(shop.place, version(2, 2))
        shop.wait(shop.serves)
        shop.wait(shop.is_read)
    factor = 5
    shop.wait(lambda: all(each.answers[-1][0][0] == each.answers[-1][1][0] * factor for each in askers))
    for each in askers:
        each.stopped.set()
        each.join(300)
        assert each.failures == []
        assert not [answer for answer in each.answers if MISSING in answer[0] + answer[1]]
        assert {totals[0] // sales[0] for totals, sales in each.answers} <= {1, 2, 4, 5}
