"""Online answers recorded while rows stream in, and the offline answers for the same instants."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from tests.deployed import wait_until
from tests.scenarios.server import ServerProcess
from umbel.connectors import Webhook, source
from umbel.datasets import Average, Count, Dataset, Max, Stddev, Sum, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.lib import inputs

__owner__ = "tests@example.com"
PATH = "/api/v1/query_offline"
WORKFLOW = "skew"


@source(Webhook(name="web").endpoint("payments"), disorder="1d", cdc="append")
@dataset
class Payment:
    user: int
    amount: float
    at: datetime


@index
@dataset
class Payments:
    user: int = field(key=True)
    count: int
    total: float
    mean: float
    largest: float
    spread: float
    ever: int
    at: datetime

    @pipeline
    @inputs(Payment)
    def by_user(cls, payments: Dataset):
        return payments.groupby("user").aggregate(
            count=Count(window=Continuous("2s")),
            total=Sum(of="amount", window=Continuous("5s")),
            mean=Average(of="amount", window=Continuous("1m")),
            largest=Max(of="amount", default=0.0, window=Continuous("4s")),
            spread=Stddev(of="amount", window=Continuous("10s")),
            ever=Count(window=Continuous("forever")),
        )


@featureset
class User:
    user: int
    count: int = F(Payments.count, default=0)
    total: float = F(Payments.total, default=0.0)
    mean: float = F(Payments.mean, default=0.0)
    largest: float = F(Payments.largest, default=0.0)
    spread: float = F(Payments.spread, default=-1.0)
    ever: int = F(Payments.ever, default=0)
    is_large: bool = F(col("total") > 100.0)


DATASETS, FEATURESETS = [Payment, Payments], [User]
USERS = list(range(12))


@contextmanager
def worker(folder: Path, *options: str) -> Iterator[set[str]]:
    """Run `umbel work` for the length of a block, and again whenever it has ended.

    Yields the numbers of its processes.
    """
    command = [sys.executable, "-m", "umbel", "work", "--dir", str(folder / "umbel"), *options]
    numbers, done = set[str](), threading.Event()

    def supervise() -> None:
        while not done.is_set():
            with (folder / "worker.log").open("ab") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log)
            numbers.add(str(process.pid))
            while process.poll() is None and not done.wait(0.2):
                pass
        process.terminate()
        process.wait(60)

    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        yield numbers
    finally:
        done.set()
        thread.join()


def record(server: ServerProcess, rounds: int, chance: random.Random) -> int:
    """Stream payments in, and query all users after each wave.

    The server records what it answers. Returns the number of payments.
    """
    sent, before = 0, datetime.now(UTC)
    for _ in range(rounds):
        span = datetime.now(UTC) - before  # what is older would be late: not known to the query before
        rows = [
            {
                "user": chance.choice(USERS[:-1]),
                "amount": chance.randrange(1, 800) / 4,  # sums of quarters are exact, in any order
                "at": (before + span * chance.random()).isoformat(),
            }
            for _ in range(chance.randrange(1, 60))
        ]
        body = {"webhook": "web", "endpoint": "payments", "data": rows}
        assert server.http.post("/api/v1/log", json=body).status_code == 200
        sent += len(rows)
        wait_until(lambda: counted(server) == sent, lambda: (counted(server), sent))  # noqa: B023
        query = {
            "inputs": ["User.user"],
            "outputs": ["User"],
            "data": {"User.user": USERS},
            "log": True,
            "workflow": WORKFLOW,
        }
        assert server.http.post("/api/v1/query", json=query).status_code == 200
        before = datetime.now(UTC) + timedelta(milliseconds=1)
        time.sleep(chance.uniform(0.01, 0.5))
    return sent


def counted(server: ServerProcess) -> int:
    """Return the number of payments that online answers contain."""
    query = {"inputs": ["User.user"], "outputs": ["User.ever"], "data": {"User.user": USERS}}
    found: list[int] = server.http.post("/api/v1/query", json=query).json()["User.ever"]
    return sum(found)


def recorded(server: ServerProcess, rows: int) -> pl.DataFrame:
    """Return the recorded answers, once all have been written."""
    found: list[Any] = []

    def all_there() -> bool:
        answer = server.http.get("/api/v1/feature_log", params={"workflow": WORKFLOW})
        found[:] = [answer.text] if answer.text.count("\n") == rows else []
        return bool(found)

    wait_until(all_there, lambda: server.said)
    return pl.read_ndjson(found[0].encode()).with_columns(pl.col("timestamp").str.to_datetime("%+", time_zone="UTC"))


def check_equal(answer: pl.DataFrame, online: pl.DataFrame) -> None:
    """Compare offline answers with the online ones.

    Exactly, but for a deviation: its last bit depends on the order of rows.
    """
    assert answer.height == online.height
    for name in answer.columns:
        expected = online[name].cast(answer[name].dtype)
        if name == "User.spread":
            assert ((answer[name] - expected).abs() <= 1e-9 * expected.abs()).all(), name
        else:
            assert answer[name].equals(expected), (name, answer[name].to_list()[:9], expected.to_list()[:9])


def answered(server: ServerProcess, prefix: str, on_begun: Callable[[Any], None] = lambda _: None) -> dict[str, Any]:
    """Run an offline query over the files at a prefix; return how it ended."""
    body = {
        "inputs": ["User.user"],
        "outputs": ["User"],
        "timestamp_column": "timestamp",
        "input": {"bucket": "data", "prefix": prefix},
        "output": {"bucket": "data", "prefix": "answers"},
    }
    answer = server.http.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    report: list[dict[str, Any]] = [answer.json()]

    def has_ended() -> bool:
        report[0] = server.http.get(f"{PATH}/status", params={"request_id": report[0]["request_id"]}).json()
        return report[0]["status"] not in {"PENDING", "RUNNING"}

    on_begun(report[0])
    wait_until(has_ended, lambda: report[0], within=900)
    assert report[0]["status"] == "COMPLETED", report[0]
    return report[0]
