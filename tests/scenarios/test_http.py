"""A real server process: requests that lie, clients that vanish, processes that are killed."""

from __future__ import annotations

import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil
import pytest

from tests.scenarios.server import HOST, ServerProcess
from tests.unit.serving.conftest import DEPARTURES, NOON
from tests.unit.serving.flights import DATASETS, FEATURESETS
from umbel.api.commit import check_commit
from umbel.catalog.tokens import Role, Tokens
from umbel.errors import Transient
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.runtime.recovery.rebuild import rebuild_all

EMPTY = b'{"webhook": "events", "endpoint": "departures", "data": []}'
LOG = b"POST /api/v1/log HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
JSON = {"Content-Type": "application/json"}
HEALTH_CHECK = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def place(folder: Path) -> Deployment:
    deployment = Deployment.at(folder / "umbel", shards=2)
    commit(deployment, check_commit(DATASETS, FEATURESETS))
    return deployment


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    place(folder)
    running = ServerProcess(folder)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.stop()


def body(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"webhook": "events", "endpoint": "departures", "data": rows}


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (LOG + b"Content-Length: 10\r\n\r\n" + EMPTY, b"400"),  # the rest is taken for a request
        (LOG + b"Content-Length: -1\r\n\r\n" + EMPTY, b"400"),
        (LOG + b"Content-Length: 999999999999999999999\r\n\r\n" + EMPTY, b"400"),
        (LOG + b"Content-Length: 99999999999\r\n\r\n" + EMPTY, b"413"),
        (LOG + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + EMPTY, b"400"),
        (LOG + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n", b"400"),
        (LOG + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"400"),
        (b"\x16\x03\x01 this is no HTTP\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"431"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nx: " + b"a" * 1_000_000 + b"\r\n\r\n", b"431"),
        (b"GET /api/v1/dataset/%ff%00/inspect HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"404"),
        (HEALTH_CHECK, b"200"),
    ],
    ids=lambda value: repr(value[-60:]),
)
def test_requests_that_lie_are_refused(server: ServerProcess, sent: bytes, status: bytes) -> None:
    answered = server.raw(sent)
    assert answered.split(b" ", 2)[:2] == [b"HTTP/1.1", status]
    assert server.http.get("/healthz").status_code == 200


def test_a_body_that_ends_early_is_refused(server: ServerProcess) -> None:
    assert b" 400 " in server.raw(LOG + b"Content-Length: 200\r\n\r\n" + EMPTY, half_close=True)
    assert server.http.get("/healthz").status_code == 200


def test_a_client_that_has_stopped_sending_is_answered(server: ServerProcess) -> None:
    requested = LOG + b"Content-Length: %d\r\n\r\n" % len(EMPTY) + EMPTY
    assert b" 200 " in server.raw(requested, half_close=True)


def test_large_bodies_are_refused_before_they_have_arrived(server: ServerProcess) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * (1 << 20)

    headers = {"Content-Type": "application/json"}
    for content in (b" " * (40 << 20), parts()):
        with suppress(httpx.TransportError):  # the server need not wait for the rest
            assert server.http.post("/api/v1/log", content=content, headers=headers).status_code == 413
    assert server.http.get("/healthz").status_code == 200


def test_large_bodies_that_never_end_take_no_more_than_some_memory(server: ServerProcess) -> None:
    size, answers = 30 << 20, list[bytes]()
    opened = [socket.create_connection((HOST, server.port), timeout=10) for _ in range(12)]
    for each in opened:
        each.sendall(LOG + b"Content-Length: %d\r\n\r\n" % (size + 1) + EMPTY.ljust(size))
    for each in opened:
        each.settimeout(1)
        with suppress(TimeoutError):
            answers.append(each.recv(1 << 16))
    assert 3 <= len(answers) <= 6
    assert all(b" 429 " in each and b"retry-after: 5" in each for each in answers)
    assert server.http.post("/api/v1/log", json=body([])).status_code == 200
    for each in opened:
        each.close()
    whole = EMPTY.ljust(size)
    deadline = time.monotonic() + 20
    while (status := server.http.post("/api/v1/log", content=whole, headers=JSON).status_code) == 429:
        assert time.monotonic() < deadline
    assert status == 200


def test_clients_that_vanish_harm_nobody(server: ServerProcess) -> None:
    hanging = []
    for part in (b"", b"POST", LOG, LOG + b"Content-Length: 200\r\n\r\n", LOG + b"Content-Length: 200\r\n\r\n" + EMPTY):
        for _ in range(20):
            connection = socket.create_connection((HOST, server.port))
            connection.sendall(part)
            hanging.append(connection)
    assert server.http.get("/healthz").status_code == 200
    for connection in hanging:
        connection.close()
    assert server.http.post("/api/v1/log", json=body([])).status_code == 200
    assert 'status="500"' not in server.http.get("/api/v1/metrics").text


def test_many_at_once_are_all_accepted(server: ServerProcess) -> None:
    def send(number: int) -> httpx.Response:
        batch = number // 2
        row = {"origin": f"A{batch}", "delay": batch, "at": NOON}
        return server.http.post("/api/v1/log", json=body([row]), headers={"Idempotency-Key": str(batch)})

    with ThreadPoolExecutor(16) as pool:
        answers = [answer.json() for answer in pool.map(send, range(200))]
    assert sum(not answer["repeated"] for answer in answers) == 100
    assert len({answer["first_row"] for answer in answers}) == 100


def test_a_second_server_on_the_port_is_refused(server: ServerProcess) -> None:
    command = [sys.executable, "-m", "umbel.cli.main", "serve", "--dir", str(server.folder), "--port", str(server.port)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert second.returncode == 2
    assert f"cannot listen on {HOST}:{server.port}: Address already in use" in second.stderr
    assert f"choose another port: --port {server.port + 1}" in " ".join(second.stderr.split())


def test_state_is_not_forgotten_beside_a_server(tmp_path: Path) -> None:
    deployment, running = place(tmp_path), ServerProcess(tmp_path)
    try:
        running.wait_until_ready()
        found = re.escape(f"another server runs on {deployment.directory}: process {running.process.pid}")
        with pytest.raises(Transient, match=found):
            rebuild_all(deployment)
        again = ServerProcess(tmp_path)
        again.wait_until_ready()
        again.stop()
        assert running.http.get("/readyz").status_code == 200
    finally:
        running.stop()
    assert rebuild_all(deployment) == []


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    deployment = place(tmp_path)
    running = ServerProcess(tmp_path)
    running.wait_until_ready()
    accepted = []
    for number in range(300):
        row = {"origin": f"A{number}", "delay": number, "at": NOON}
        if number == 200:
            for each in [*running.family(), psutil.Process(running.process.pid)]:
                each.kill()
            running.process.wait()
        try:
            if running.http.post("/api/v1/log", json=body([row])).status_code == 200:
                accepted.append(number)
        except httpx.TransportError:
            continue
    running.http.close()
    assert accepted == list(range(200))
    drain(deployment)
    assert deployment.catalog.counts() == {("Departure", "rows"): 200}


def test_when_the_parent_is_killed_the_port_is_free(tmp_path: Path) -> None:
    place(tmp_path)
    running = ServerProcess(tmp_path)
    running.wait_until_ready()
    family = running.family()
    running.http.close()
    running.process.kill()
    running.process.wait()
    _, left = psutil.wait_procs(family, timeout=30)
    assert left == []
    with socket.socket() as listener:
        listener.bind((HOST, running.port))


def test_several_processes_share_the_work_and_the_figures(tmp_path: Path) -> None:
    drained = place(tmp_path)
    running = ServerProcess(tmp_path, "--servers", "2")
    try:
        running.wait_until_ready()
        for _ in range(50):  # each on a connection of its own
            answer = httpx.post(f"http://{HOST}:{running.port}/api/v1/log", json=body(DEPARTURES))
            assert answer.status_code == 200
        figure = 'umbel_logged_rows_total{endpoint="departures",webhook="events"} 150.0'
        deadline = time.monotonic() + 10
        while figure not in running.http.get("/api/v1/metrics").text and time.monotonic() < deadline:
            time.sleep(0.05)
        assert figure in running.http.get("/api/v1/metrics").text
        drain(drained)
        requested = {
            "inputs": ["Origin.origin"],
            "outputs": ["Origin"],
            "data": {"Origin.origin": ["JFK"]},
            "as_of": NOON,
        }
        content = orjson.dumps(requested)
        for _ in range(20):
            found = httpx.post(
                f"http://{HOST}:{running.port}/api/v1/query",
                content=content,
                headers={"Content-Type": "application/json"},
            )
            assert found.json()["Origin.departures"] == [50]
    finally:
        running.stop()


def test_a_server_stops_though_its_threads_wait(tmp_path: Path) -> None:
    deployment = place(tmp_path)
    token = Tokens(deployment.catalog).create("ops", Role.ADMIN)
    running = ServerProcess(tmp_path)
    running.wait_until_ready()
    with closing(sqlite3.connect(deployment.directory / "catalog.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with suppress(httpx.ReadTimeout):
            proof = {"Authorization": f"Bearer {token}"}
            running.http.post("/api/v1/secret/s", json={"value": "v"}, headers=proof, timeout=0.5)
        running.stop()  # within 30 s; what writes into the catalog waits for 60
        assert running.process.returncode != -signal.SIGKILL
        other.execute("ROLLBACK")


@pytest.mark.parametrize("servers", ["1", "2"])
def test_the_feature_log_outlives_the_server(tmp_path: Path, servers: str) -> None:
    place(tmp_path)
    query = {
        "inputs": ["Origin.origin"],
        "outputs": ["Origin.departures"],
        "data": {"Origin.origin": ["JFK"] * 50},
        "log": True,
    }
    before = ServerProcess(tmp_path, "--servers", servers)
    try:
        before.wait_until_ready()
        for _ in range(20):
            assert before.http.post("/api/v1/query", json=query).status_code == 200
        figures = before.http.get("/api/v1/metrics").text
    finally:
        before.stop()
    assert 'umbel_features_total{feature="departures",featureset="Origin",workflow="default"}' in figures
    after = ServerProcess(tmp_path, "--servers", servers)
    try:
        after.wait_until_ready()
        retained = after.http.get("/api/v1/feature_log").text.splitlines()
    finally:
        after.stop()
    assert len(retained) == 20 * 50
