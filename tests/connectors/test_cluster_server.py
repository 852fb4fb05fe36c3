"""A server on another machine than the worker: it has catalog and store, and a folder of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed, wait_until
from tests.sales import base, put_everywhere
from tests.scenarios.server import ServerProcess
from tests.servers.postgres import PostgresServer
from umbel.catalog.offline_jobs import OfflineJob, OfflineJobs
from umbel.client.localtoken import local_server, token_of
from umbel.offline.runner import OfflineRunner
from umbel.runtime.batch import drain
from umbel.runtime.deployment import Deployment
from umbel.serving.backlog import EVERY

LOOKUP = "/api/v1/dataset/Totals/lookup"


@pytest.fixture
def worker(cluster_urls: dict[str, str], tmp_path: Path) -> Iterator[Deployed]:
    """Return the deployment on the worker's machine, with processed rows."""
    urls = {"catalog_url": cluster_urls["UMBEL_CATALOG"], "store_url": cluster_urls["UMBEL_STORE"]}
    deployed = Deployed(tmp_path / "home" / "umbel", **urls)
    assert deployed.deployment.is_home
    deployed.commit(base(tmp_path / "files"))
    put_everywhere(tmp_path / "files", deployed, 0)
    drain(deployed.deployment)
    yield deployed
    deployed.close()


@pytest.fixture
def server(worker: Deployed, tmp_path: Path) -> Iterator[ServerProcess]:
    (tmp_path / "elsewhere").mkdir()
    started = ServerProcess(tmp_path / "elsewhere", "--queries-only")
    started.wait_until_ready()
    yield started
    started.stop()


def answer(server: ServerProcess) -> Any:
    response = server.http.post(LOOKUP, json={"keys": [{"user": number} for number in range(6)]})
    assert response.status_code == 200, response.text
    return response.json()


def test_its_answers_are_those_beside_the_worker(
    worker: Deployed,
    server: ServerProcess,
    tmp_path: Path,
    cluster_database: PostgresServer,
) -> None:
    beside = ServerProcess(tmp_path / "home")
    beside.wait_until_ready()
    assert answer(server) == answer(beside)
    assert any(answer(server)["found"])
    for wave in range(1, 4):
        put_everywhere(tmp_path / "files", worker, wave)
        drain(worker.deployment)
        expected = answer(beside)
        wait_until(lambda: answer(server) == expected, lambda: answer(server), within=120)  # noqa: B023
    beside.stop()
    cluster_database.kill()  # answers do not need it
    assert answer(server) == expected
    cluster_database.start()


@pytest.mark.parametrize("path", ["log", "query_offline", "init", "delete", "secret/x"])
def test_it_refuses_what_needs_the_worker(server: ServerProcess, path: str) -> None:
    local = local_server(str(server.http.base_url).rstrip("/"))
    headers = {"Authorization": f"Bearer {token_of(local)}"} if local else {}
    refused = server.http.post(
        f"/api/v1/{path}", json={"webhook": "web", "endpoint": "sales", "data": []}, headers=headers
    )
    assert (refused.status_code, refused.json()["code"]) == (422, "not-supported"), refused.text
    assert "this server answers queries only" in refused.text


def test_it_tells_nothing_of_the_worker_and_its_logs(server: ServerProcess) -> None:
    deep, metrics = server.http.get("/readyz?deep"), server.http.get("/api/v1/metrics")
    assert (deep.status_code, deep.json().keys()) == (200, {"status", "revision"}), deep.text
    assert metrics.status_code == 200, metrics.text
    assert 'umbel_dataset_rows{dataset="Sales"' in metrics.text
    assert 'umbel_state_rows{shard="0"}' in metrics.text
    assert [name for name in ("umbel_worker_", "umbel_lag_", "umbel_log_") if name in metrics.text] == []
    time.sleep(2 * EVERY)
    assert "cannot tell how many events wait" not in server.said


def test_it_leaves_offline_queries_to_the_servers_beside_the_worker(worker: Deployed, tmp_path: Path) -> None:
    there = worker.deployment
    here = Deployment.at(tmp_path / "elsewhere", catalog_url=there.catalog_url, store_url=there.store_url)
    OfflineJobs(there.catalog).add(OfflineJob("job", "main", b"", "data", "answers/"))
    assert [OfflineRunner(each)._is_needed() for each in (there, here)] == [True, False]
    here.catalog.close()


def test_without_the_option_it_does_not_start(worker: Deployed, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    wrong = ServerProcess(tmp_path / "elsewhere")
    assert wrong.process.wait(60) == 2
    assert "is not the folder of this catalog's deployment" in wrong.said
    assert "--queries-only" in wrong.said
