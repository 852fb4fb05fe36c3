"""The image, built from the Dockerfile, in containers as the chart runs them: no root, no rights, nothing to write to."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deploy.image import ACCOUNT, Container, Image, built_image
from tests.deploy.test_chart import pods, rendered
from tests.deployed import wait_until
from tests.scenarios.server import HOST, free_port

pytestmark = pytest.mark.nightly

PORTS = {"server": free_port(), "collector": free_port()}
SERVER, COLLECTOR = (f"http://{HOST}:{port}" for port in PORTS.values())
PATIENCE = 240.0
DEFINITIONS = """
from datetime import datetime
from umbel import Count, Dataset, Sum, Webhook, dataset, feature as F, featureset, field, inputs, pipeline, source

__owner__ = "tests@example.com"


@source(Webhook(name="web").endpoint("orders"), disorder="1d", cdc="append")
@dataset
class Order:
    user: int
    cents: int
    at: datetime


@dataset(index=True)
class PerUser:
    user: int = field(key=True)
    cents: int
    orders: int
    at: datetime

    @pipeline
    @inputs(Order)
    def per_user(cls, orders: Dataset):
        return orders.groupby("user").aggregate(
            cents=Sum(of="cents", window="forever"), orders=Count(window="forever")
        )


@featureset
class User:
    user: int
    cents: int = F(PerUser.cents, default=0)
    orders: int = F(PerUser.orders, default=0)
"""

Start = Callable[..., Container]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    with built_image(tmp_path_factory.mktemp("image")) as found:
        yield found


@pytest.fixture
def start(image: Image, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a container of the chart on one volume."""
    started: list[Container] = []
    found = {owner["metadata"]["name"]: pod for owner, pod in pods(rendered({"collector.to": ""}))}
    for part, port in PORTS.items():
        for each in found[f"shop-{part}"]["containers"]:
            each["args"] = [f"--port={port}" if "--port=" in option else option for option in each["args"]]
    volume(tmp_path)

    def begin(name: str, container: str, command: list[str] | None = None) -> Container:
        (tmp_path / f"tmp-{container}").mkdir(exist_ok=True)
        (tmp_path / f"tmp-{container}").chmod(0o1777)
        volumes = {"data": tmp_path / "data", "tmp": tmp_path / f"tmp-{container}"}
        started.append(image.start(found[f"shop-{name}"], container, volumes, command))
        return started[-1]

    yield begin
    for each in started:
        each.kill()


def volume(folder: Path) -> None:
    """Make a volume as Kubernetes gives it: its root belongs to root, and to the group of the pod."""
    data = folder / "data"
    (data / "lost+found").mkdir(parents=True, mode=0o700)
    os.chown(data, 0, ACCOUNT)
    data.chmod(0o2775)


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_server_and_worker_share_a_volume_and_start_again(start: Start, tmp_path: Path) -> None:
    expected: dict[int, list[int]] = {}
    start("server", "first-token").report()
    headers = {
        "Authorization": f"Bearer {(tmp_path / 'data' / 'admin-token').read_text().strip()}",
        "Host": "shop-server",
    }
    server, worker = start("server", "server"), start("worker", "worker")
    wait_until(lambda: is_ready(SERVER), lambda: server.said + worker.said, PATIENCE)
    (tmp_path / "tmp-server" / "orders.py").write_text(DEFINITIONS)
    commit = f"UMBEL_TOKEN=$(cat admin-token) umbel commit /tmp/orders.py --url {SERVER}"
    start("server", "server", ["sh", "-c", commit]).report()

    def log(first: int) -> None:
        rows = [{"user": n % 7, "cents": n * n, "at": "2026-03-01T00:00:00Z"} for n in range(first, first + 500)]
        body = {"webhook": "web", "endpoint": "orders", "data": rows}
        assert httpx.post(f"{SERVER}/api/v1/log", json=body, headers=headers).status_code == 200
        for row in rows:
            of_user = expected.setdefault(row["user"], [0, 0])
            of_user[0], of_user[1] = of_user[0] + row["cents"], of_user[1] + 1

    def answer() -> Any:
        body = {"inputs": ["User.user"], "outputs": ["User.cents", "User.orders"], "data": {"User.user": [*expected]}}
        found = httpx.post(f"{SERVER}/api/v1/query", json=body, headers=headers, timeout=60).json()
        return dict(zip(expected, map(list, zip(found["User.cents"], found["User.orders"], strict=True)), strict=True))

    log(0)
    wait_until(lambda: answer() == expected, lambda: (answer(), worker.said), PATIENCE)
    log(500)
    worker.stop()
    server.stop()
    server = start("server", "server")
    wait_until(lambda: is_ready(SERVER), lambda: server.said, PATIENCE)
    log(1000)
    worker = start("worker", "worker")
    wait_until(lambda: answer() == expected, lambda: (answer(), worker.said), PATIENCE)
    assert not [each for each in worker.said.splitlines() if "rror" in each]
    worker.stop()
    server.stop()


def test_a_collector_ends_in_time_and_loses_nothing(start: Start) -> None:
    accepted = 0
    for _ in range(2):
        collector = start("collector", "collector")
        wait_until(lambda each=collector: is_ready(COLLECTOR), lambda each=collector: each.said, PATIENCE)
        for n in range(20):
            body = [{"n": n}] * 5
            accepted += httpx.post(f"{COLLECTOR}/api/v1/events/clicks", json=body).json()["accepted"]
        collector.stop()
    lines = start("collector", "collector", ["umbel", "collect", "cat", "clicks"]).report().splitlines()
    assert len([each for each in lines if each.startswith('{"n"')]) == accepted == 200


@pytest.mark.parametrize(("pod", "container"), [("server", "server"), ("worker", "worker"), ("collector", "collector")])
def test_a_container_ends_also_while_it_starts(pod: str, container: str, start: Start) -> None:
    starting = start(pod, container)
    starting.first().send_signal(signal.SIGTERM)
    assert starting.process.wait(10) == 128 + signal.SIGTERM


def test_it_explains_itself_and_has_what_its_commands_need(start: Start) -> None:
    assert "Real-time features" in start("server", "server", ["umbel", "--help"]).report()
    assert "no errors" in start("server", "server", ["umbel", "doctor"]).report()
    imports = "import confluent_kafka, psycopg, fastavro"
    start("server", "server", ["python", "-c", imports]).report()
