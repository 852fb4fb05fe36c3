"""What tests of several machines share: a catalog in PostgreSQL and a store in a bucket, found in the environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.s3server import S3Server, started_or_skipped
from tests.scenarios.server import HOST
from tests.servers.postgres import PASSWORD, USER, PostgresServer, started_or_missing


@pytest.fixture(scope="module")
def cluster_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    yield from started_or_skipped(tmp_path_factory.mktemp("s3"))


@pytest.fixture(scope="module")
def cluster_database() -> Iterator[PostgresServer]:
    """Return a server of its own: tests kill it."""
    yield from started_or_missing()


@pytest.fixture
def cluster_urls(
    cluster_s3: S3Server, cluster_database: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Return catalog and store, which all processes find in their environment."""
    (cluster_s3.folder / "state").mkdir(exist_ok=True)
    name = f"umbel_{uuid4().hex}"
    cluster_database.run(f"CREATE DATABASE {name}")
    urls = {
        "UMBEL_CATALOG": f"postgresql://{USER}:{PASSWORD}@{HOST}:{cluster_database.port}/{name}",
        "UMBEL_STORE": f"s3://state/{name}?flush_bytes=20000",
    }
    for variable, value in {**cluster_s3.environment, **urls, "UMBEL_STATE_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(variable, value)
    return urls
