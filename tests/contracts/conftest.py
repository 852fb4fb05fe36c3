"""The stores that are held to the contract. One of another package joins by its URL in `UMBEL_CONTRACT_STORES`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.store_entries import SHARDS
from umbel.state.port import Store
from umbel.state.urls import open_store

OWN = ["memory://", "lmdb://{directory}?sync=off"]
URLS = OWN + os.environ.get("UMBEL_CONTRACT_STORES", "").split()


@pytest.fixture(params=URLS, ids=lambda url: url.partition(":")[0])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_store(request.param.format(directory=tmp_path / "db"), SHARDS)
    for shard in range(SHARDS):
        for owner in opened.owners(shard):
            opened.drop(owner)
    yield opened
    opened.close()
