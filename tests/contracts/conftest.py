"""Contracts of stores and of buckets on S3. A store of another package joins by `UMBEL_CONTRACT_STORES`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.contracts.store_entries import SHARDS
from tests.s3server import S3Server, started_or_skipped
from umbel.state.port import Store
from umbel.state.urls import open_store

FLUSHED = "file://{directory}?sync=off&flush_bytes=1"
"""A store that flushes and merges after each transaction."""

BUCKET = "s3://state/{name}?cache={directory}&flush_bytes=1"
"""A store in a bucket, that flushes and merges after each transaction."""
LASTING = ["file://{directory}?sync=off", FLUSHED, BUCKET, *os.environ.get("UMBEL_CONTRACT_STORES", "").split()]


def name_of(url: str) -> str:
    """Return the name of a store in the names of tests."""
    return url.partition(":")[0] + "-flushed" * ("flush_bytes" in url)


def url_of(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a store for one test, for one in a bucket after starting its server."""
    url = str(request.param)
    if url.startswith("s3:"):
        server: S3Server = request.getfixturevalue("s3")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        (server.folder / "state").mkdir(exist_ok=True)
    return url.format(directory=folder / "db", name=uuid4().hex)


@pytest.fixture(params=["memory://", *LASTING], ids=name_of)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    opened = open_store(url_of(request, tmp_path, monkeypatch), SHARDS)
    for shard in range(SHARDS):
        for state_id in opened.state_ids(shard):
            opened.drop(state_id)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Return a server that speaks the protocol of S3."""
    yield from started_or_skipped(tmp_path_factory.mktemp("s3"))
