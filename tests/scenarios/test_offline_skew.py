"""Zero skew: an offline query answers what was answered online while rows streamed in."""

from __future__ import annotations

import math
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

from tests.deployed import wait_until
from tests.scenarios.server import ServerProcess
from tests.skewing import (
    DATASETS,
    FEATURESETS,
    USERS,
    WORKFLOW,
    User,
    answered,
    check_equal,
    counted,
    record,
    recorded,
    worker,
)
from umbel.api.commit import check_commit
from umbel.client import Client
from umbel.connectors.buckets import LOCATION
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment

ROUNDS = 12
ROWS = 300_000
"""So large rows are more than one part: Spark answers them."""


def test_offline_answers_are_those_recorded_online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCATION, (tmp_path / "buckets").as_uri())
    chance = random.Random(seed := random.randrange(1000))
    print("seed", seed)
    commit(Deployment.at(tmp_path / "umbel", shards=2), check_commit(DATASETS, FEATURESETS))
    server = ServerProcess(tmp_path)
    try:
        with worker(tmp_path, "-w", "1"):
            server.wait_until_ready()
            record(server, ROUNDS, chance)
            online = recorded(server, ROUNDS * len(USERS))
            folder = tmp_path / "buckets" / "data"
            (folder / "small").mkdir(parents=True)
            (folder / "large").mkdir(parents=True)
            # columns in another order, rows in none; what is answered online is there, too, and must not be read
            small = online.sample(fraction=1.0, shuffle=True, seed=seed).select(*reversed(online.columns))
            small.write_parquet(folder / "small" / "a.parquet")
            large = pl.concat([small] * (ROWS // small.height + 1))
            large.write_parquet(folder / "large" / "a.parquet", row_group_size=large.height)
            spark = list[str]()
            for name, rows in (("small", small), ("large", large)):
                report = answered(server, f"{name}/", lambda _: spark.extend(jvm_of(server) if name == "large" else []))  # noqa: B023
                answer = pl.read_parquet(folder / report["output_prefix"] / "part-*.parquet")
                check_equal(answer, rows)
            assert spark, "the large one was answered by Spark"
            check_corrections(server, online)
    finally:
        server.stop()


def check_corrections(server: ServerProcess, online: pl.DataFrame) -> None:
    """Compare what was answered while rows streamed in with today's answers, before and after a late payment."""
    client = Client(f"{server.http.base_url}")
    before = client.corrections([User.user], workflow=WORKFLOW)
    assert before.features["answers"].tolist() == [online.height] * len(before.features)
    assert before.answers.empty
    at, rows = online["timestamp"].median(), counted(server)
    late = {"user": USERS[0], "amount": 7.25, "at": at.isoformat()}
    server.http.post("/api/v1/log", json={"webhook": "web", "endpoint": "payments", "data": [late]}).raise_for_status()
    wait_until(lambda: counted(server) == rows + 1, lambda: counted(server))
    after = client.corrections([User.user], [User.ever, User.total], WORKFLOW)
    since = online.filter(pl.col("User.user") == USERS[0], pl.col("timestamp") >= at)
    own = after.answers.groupby("feature")
    assert own["change"].unique().map(list).to_dict() == {"User.ever": [1.0], "User.total": [7.25]}
    assert own["timestamp"].apply(list)["User.ever"] == since["timestamp"].sort().to_list()
    assert set(after.answers["User.user"]) == {USERS[0]}
    check_trace(client, at, late)


def check_trace(client: Client, at: datetime, late: dict[str, Any]) -> None:
    """Trace values to rows, which add up to them, and to the places of these in the endpoint's log."""
    found = client.trace([User.total, User.ever], {User.user: USERS[0]}, at=at, rows=10_000)
    (lookup,) = found.lookups
    (changes,) = lookup["rows"]
    assert changes["count"] == len(changes["data"]["amount"]) == found.values["User.ever"]
    amounts = list(zip(changes["data"]["at"], changes["data"]["amount"], strict=True))
    for tiles in lookup["tiles"]:
        name = "total" if tiles["window"] == "5s" else "ever"
        whole = [value for value, is_cut in zip(tiles["values"][name], tiles["is_cut"], strict=True) if not is_cut]
        cut = [first for first, is_cut in zip(tiles["first"], tiles["is_cut"], strict=True) if is_cut]
        partly = [amount if name == "total" else 1 for row, amount in amounts if cut and row >= cut[0]]
        assert math.isclose(math.fsum([*whole, *partly]), found.values[f"User.{name}"]), tiles
    (of_late,) = (row for row, amount in enumerate(changes["data"]["amount"]) if amount == late["amount"])
    assert changes["batch"][of_late] == max(changes["batch"])
    numbers = [int(where.removeprefix("Webhook 'web': web/payments, row ")) for (where,) in changes["source"]]
    assert len({*numbers}) == len(numbers)
    assert numbers[of_late] == max(numbers)


def jvm_of(server: ServerProcess) -> list[str]:
    """Wait for a JVM below the server; return its name."""
    found = list[str]()

    def is_there() -> bool:
        found[:] = [each.name() for each in server.family() if running_java(each)]
        return bool(found)

    wait_until(is_there, server.family, within=300)
    return found


def running_java(process: psutil.Process) -> bool:
    try:
        return process.name() == "java"
    except psutil.NoSuchProcess:
        return False
