"""Offline queries on a Spark cluster: beside the live job, with machines that die."""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.deployed import wait_until
from tests.s3server import S3Server
from tests.scenarios.server import ServerProcess
from tests.servers import spark
from tests.skewing import DATASETS, FEATURESETS, USERS, answered, check_equal, record, recorded, worker
from umbel.api.commit import check_commit
from umbel.connectors.buckets import LOCATION
from umbel.offline.driver import LOCK
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment

ROUNDS = 6
ROWS = 400_000


@pytest.mark.nightly
def test_the_answers_are_those_recorded_online(
    cluster_urls: dict[str, str], cluster_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State and catalog are on servers; machines die while the job runs."""
    buckets = tmp_path / "buckets"
    monkeypatch.setenv(LOCATION, buckets.as_uri())
    chance = random.Random(seed := random.randrange(1000))
    print("seed", seed)
    urls = {"catalog_url": cluster_urls["UMBEL_CATALOG"], "store_url": cluster_urls["UMBEL_STORE"]}
    deployment = Deployment.at(tmp_path / "umbel", shards=2, **urls)
    commit(deployment, check_commit(DATASETS, FEATURESETS))
    with spark.running(tmp_path / "cluster") as cluster, ExitStack() as closing:
        options = ["--master", cluster.url, "--conf", "spark.executor.memory=600m"]
        numbers = closing.enter_context(worker(tmp_path, *options))
        server = ServerProcess(tmp_path)
        closing.callback(server.stop)
        server.wait_until_ready()
        record(server, ROUNDS, chance)
        online = recorded(server, ROUNDS * len(USERS))
        rows = pl.concat([online] * (ROWS // online.height))
        (buckets / "data" / "rows").mkdir(parents=True)
        rows.write_parquet(buckets / "data" / "rows" / "a.parquet", row_group_size=rows.height // 2)
        lock = tmp_path / "umbel" / f"{LOCK}.lock"
        wait_until(lambda: lock.exists() and lock.read_text() in numbers, lock.read_text)

        def kill(report: dict[str, Any]) -> None:
            wait_until(lambda: status(server, report)["completion_rate"] > 0, lambda: status(server, report))
            victim = cluster.workers[0]
            victim.kill()
            victim.start()
            time.sleep(chance.uniform(0, 2))

        report = answered(server, "rows/", kill)
        ran = [log for n in range(2) for log in (tmp_path / "cluster" / f"worker-{n}").glob("app-*/*/stderr")]
        assert any("Running task" in log.read_text(errors="replace") for log in ran)
    check_equal(pl.read_parquet(buckets / "data" / report["output_prefix"] / "part-*.parquet"), rows)
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    logs = [*(tmp_path / "umbel" / "logs").iterdir(), *ran, tmp_path / "worker.log"]
    assert not [each for each in logs if secret in each.read_text(errors="replace")]


def status(server: ServerProcess, report: dict[str, Any]) -> dict[str, Any]:
    found = server.http.get("/api/v1/query_offline/status", params={"request_id": report["request_id"]})
    return dict(found.json())
