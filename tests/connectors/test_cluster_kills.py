"""A Spark cluster, the state in a bucket, the catalog in PostgreSQL: each is killed, and the answers stay equal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.kills import VICTIMS, run
from tests.s3server import S3Server, started_or_skipped
from tests.scenarios.server import HOST
from tests.servers import postgres, spark
from tests.servers.postgres import PASSWORD, USER, PostgresServer


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    yield from started_or_skipped(tmp_path_factory.mktemp("s3"))


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    yield from postgres.started_or_missing()


@pytest.fixture
def environment(
    s3: S3Server, database: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Return catalog and store, which all processes find in their environment."""
    (s3.folder / "state").mkdir(exist_ok=True)
    name = f"umbel_{uuid4().hex}"
    database.run(f"CREATE DATABASE {name}")
    urls = {
        "UMBEL_CATALOG": f"postgresql://{USER}:{PASSWORD}@{HOST}:{database.port}/{name}",
        "UMBEL_STORE": f"s3://state/{name}?flush_bytes=20000",
    }
    for variable, value in {**s3.environment, **urls, "UMBEL_STATE_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(variable, value)
    return urls


@pytest.fixture
def killed(
    environment: dict[str, str], database: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[list[str], random.Random], None]]:
    """Yield what runs the live job on a cluster, kills some of its parts, and compares."""
    with spark.running(tmp_path / "cluster") as cluster:
        monkeypatch.setenv("UMBEL_MASTER", cluster.url)
        parts = {"machine": cluster.workers[0], "other machine": cluster.workers[1], "master": cluster.master}

        def kill(victim: str) -> None:
            part = {**parts, "database": database}[victim]
            part.kill()
            part.start()

        def run_and_kill(victims: list[str], chance: random.Random) -> None:
            urls = {"catalog_url": environment["UMBEL_CATALOG"], "store_url": environment["UMBEL_STORE"]}
            run(tmp_path, victims, chance, kill, **urls)
            for number in range(2):
                logs = (tmp_path / "cluster" / f"worker-{number}").glob("app-*/*/stderr")
                assert any("Running task" in log.read_text(errors="replace") for log in logs), (
                    "tasks ran on every machine"
                )

        yield run_and_kill


def test_machines_that_die(killed: Callable[[list[str], random.Random], None]) -> None:
    killed(["machine", "driver", "database", "other machine", "master"], random.Random())


@pytest.mark.nightly
def test_many_kills(killed: Callable[[list[str], random.Random], None]) -> None:
    chance = random.Random()
    killed(chance.choices([*VICTIMS[:2], "machine", "other machine", "master", "database"], k=12), chance)
