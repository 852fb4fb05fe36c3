"""A server over a deployment of its own, with flights committed and some of them processed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.serving.asgi import InProcess, serving_admin
from tests.unit.serving.flights import DATASETS, FEATURESETS
from umbel.api.commit import check_commit
from umbel.connectors.buckets import LOCATION
from umbel.offline.runner import OfflineRunner
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment

NOON = "2013-12-01T12:00:00Z"
DEPARTURES = [
    {"origin": "JFK", "delay": 30, "ratio": 0.5, "at": NOON},
    {"origin": "JFK", "delay": 10, "ratio": None, "at": "2013-12-01T15:00:00Z"},
    {"origin": "LGA", "delay": -5, "at": "2013-12-01T15:30:00Z"},
]


@dataclass
class Served:
    """A server in this process."""

    deployment: Deployment
    transport: InProcess
    http: httpx.Client

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.http.post(path, json=body, **options)

    def log(self, endpoint: str, data: Any, **options: Any) -> httpx.Response:
        return self.post("/api/v1/log", {"webhook": "events", "endpoint": endpoint, "data": data}, **options)

    def process(self) -> int:
        batches = drain(self.deployment)
        self.http.get("/readyz")  # the server looks what serves by now
        return batches

    def dead(self, dataset: str) -> list[dict[str, Any]]:
        return self.http.get(f"/api/v1/dataset/{dataset}/dead_letters").json()


def served_at(path: Path) -> Iterator[Served]:
    deployment = Deployment.at(path, shards=2)
    commit(deployment, check_commit(DATASETS, FEATURESETS))
    with (
        serving_admin(deployment) as transport,
        httpx.Client(transport=transport, base_url="http://umbel") as http,
    ):
        yield Served(deployment, transport, http)
    deployment.store.close()
    deployment.catalog.close()


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server with some departures processed; tests that share it add nothing to them."""
    for served in served_at(tmp_path_factory.mktemp("flights")):
        assert served.log("departures", DEPARTURES).status_code == 200
        served.process()
        yield served


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    """Return a server without any rows."""
    yield from served_at(tmp_path)


@pytest.fixture(scope="module")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder whose folders are buckets; one is `data`."""
    folder = tmp_path_factory.mktemp("buckets")
    (folder / "data").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOCATION, folder.as_uri())
        yield folder


@pytest.fixture(scope="module")
def offline(buckets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    for served in served_at(tmp_path_factory.mktemp("served")):
        assert served.log("departures", DEPARTURES).status_code == 200
        served.process()
        yield served


@pytest.fixture
def idle(offline: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """Return the server; it takes up no jobs."""

    monkeypatch.setattr(OfflineRunner, "_is_needed", lambda _: False)
    return offline
