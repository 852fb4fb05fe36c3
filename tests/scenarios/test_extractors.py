"""A real server process whose users' extractors raise, exit, crash, hang and swallow memory: only their requests notice."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import httpx
import psutil
import pytest

from tests.misbehaving import KINDS
from tests.scenarios.misbehaving_features import DATASETS, FEATURESETS
from tests.scenarios.server import ServerProcess
from umbel.api.commit import check_commit
from umbel.log.ingest import IngestLogs
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment

SECONDS = 8.0
EXPECTED = {
    "raise": ("extractor-failed", "no such thing"),
    "exit": ("extractor-failed", "SystemExit|3"),
    "interrupt": ("extractor-failed", "KeyboardInterrupt"),
    "cancel": ("extractor-failed", "too late"),
    "mute": ("extractor-failed", "its text cannot be made: KeyError"),
    "os_exit": ("extractor-ended", "exit code 7"),
    "limit": ("extractor-ended", "exit code 1"),
    "abort": ("extractor-ended", "SIGABRT"),
    "segv": ("extractor-ended", "SIGSEGV"),
    "spin": ("extractor-timed-out", "longer than"),
    "memory": ("extractor-ended", "more than 512 MiB"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    place = Deployment.at(folder / "umbel", shards=2)
    commit(place, check_commit(DATASETS, FEATURESETS))
    logs = IngestLogs(place.directory)
    row = b'[{"name": "ann", "age": 41, "at": "2024-01-01T00:00:00Z"}]'
    logs.log("web", "people").append_blocking(row, 1)
    logs.close()
    drain(place)
    limits = {"UMBEL_EXTRACTOR_SECONDS": str(SECONDS), "UMBEL_EXTRACTOR_MEMORY": "512"}
    with patch.dict(os.environ, limits):
        running = ServerProcess(folder)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.stop()


def ask(server: ServerProcess, feature: str, *whats: str) -> httpx.Response:
    featureset = feature.partition(".")[0]
    body: dict[str, Any] = {
        "inputs": [f"{featureset}.what"],
        "outputs": [feature],
        "data": {f"{featureset}.what": list(whats)},
    }
    return httpx.post(f"{server.http.base_url}/api/v1/query", json=body, timeout=60)


def test_an_extractor_computes_and_looks_up(server: ServerProcess) -> None:
    assert ask(server, "Tame.size", "a", "bbb").json() == {"Tame.size": [1, 3]}
    assert ask(server, "Tame.age", "ann", "bob").json() == {"Tame.age": [41, -1]}


def test_threads_of_an_extractor_look_up(server: ServerProcess) -> None:
    names = ["ann", "bob", "ann", "kim"] * 5
    expected = [41 if name == "ann" else -1 for name in names]
    assert ask(server, "Tame.ages", *names).json() == {"Tame.ages": expected}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.nightly if kind in ("spin", "abort", "segv") else ()) for kind in KINDS],
)
def test_the_answer_names_the_extractor_and_the_row_that_failed(server: ServerProcess, kind: str) -> None:
    process = psutil.Process(server.process.pid)
    code, text = EXPECTED[kind]
    for whats in ([kind], ["fine", kind, "good"]):
        response = ask(server, "Wild.length", *whats)
        assert response.status_code == 422
        refusal = response.json()
        assert refusal["code"] == code
        assert any(each in refusal["message"] for each in text.split("|"))
        assert "Extractor length_of in Wild" in refusal["message"]
        assert f"row {whats.index(kind)} of {len(whats)}: Wild.what='{kind}'" in refusal["message"]
    assert ask(server, "Wild.length", "four").json() == {"Wild.length": [4]}
    assert process.is_running()
    assert server.process.poll() is None


def test_twenty_calls_that_hang_block_nobody_else(server: ServerProcess) -> None:
    with ThreadPoolExecutor(21) as pool:
        begun = time.monotonic()
        hung = [pool.submit(ask, server, "Wild.length", "sleep") for _ in range(20)]
        answered = 0
        while not all(each.done() for each in hung):
            assert ask(server, "Tame.size", "abc").json() == {"Tame.size": [3]}
            assert ask(server, "Tame.age", "ann").json() == {"Tame.age": [41]}
            answered += not all(each.done() for each in hung)
        assert answered > 0, "others are answered while all of them hang"
        for each in hung:
            refusal = each.result().json()
            assert refusal["code"] == "extractor-timed-out"
            assert "length_of" in refusal["message"]
        assert time.monotonic() - begun < 20 * SECONDS, "they wait at the same time, not for each other"
    assert ask(server, "Wild.length", "four").json() == {"Wild.length": [4]}


@pytest.mark.nightly
def test_nothing_is_left_of_what_hung(server: ServerProcess) -> None:
    ask(server, "Wild.length", "spin")
    alive = [each for each in server.family() if each.cpu_percent(0.2) > 50]
    assert alive == []
