"""A Spark cluster, the state in a bucket, the catalog in PostgreSQL: each is killed, and the answers stay equal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kills import VICTIMS, run
from tests.s3server import S3Server
from tests.seeds import chance_of_seed
from tests.servers import spark
from tests.servers.postgres import PostgresServer


@pytest.fixture
def killed(
    cluster_urls: dict[str, str],
    cluster_database: PostgresServer,
    cluster_s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[list[str], random.Random], None]]:
    """Yield what runs the live job on a cluster, kills some of its parts, and compares."""
    with spark.running(tmp_path / "cluster") as cluster:
        monkeypatch.setenv("UMBEL_MASTER", cluster.url)
        machines = {"machine": cluster.workers[0], "other machine": cluster.workers[1], "master": cluster.master}
        parts = {**machines, "cluster": cluster, "database": cluster_database, "bucket": cluster_s3}

        def kill(victim: str) -> None:
            parts[victim].kill()
            parts[victim].start()

        def run_and_kill(victims: list[str], chance: random.Random) -> None:
            urls = {"catalog_url": cluster_urls["UMBEL_CATALOG"], "store_url": cluster_urls["UMBEL_STORE"]}
            run(tmp_path, victims, chance, kill, **urls)
            for number in range(2):
                logs = (tmp_path / "cluster" / f"worker-{number}").glob("app-*/*/stderr")
                assert any("Running task" in log.read_text(errors="replace") for log in logs), (
                    "tasks ran on every machine"
                )

        yield run_and_kill


def test_machines_that_die(killed: Callable[[list[str], random.Random], None]) -> None:
    killed(["machine", "driver", "database", "bucket"], chance_of_seed())


@pytest.mark.nightly
def test_each_part_dies(killed: Callable[[list[str], random.Random], None]) -> None:
    killed(["machine", "driver", "database", "other machine", "bucket", "master", "cluster"], chance_of_seed())


@pytest.mark.nightly
def test_many_kills(killed: Callable[[list[str], random.Random], None]) -> None:
    chance = chance_of_seed()
    killed(
        chance.choices([*VICTIMS[:2], "machine", "other machine", "master", "cluster", "database", "bucket"], k=12),
        chance,
    )
