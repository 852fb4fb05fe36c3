"""`umbel run`, whole: it starts, takes events, answers, survives kills, stops, and leaves nobody behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.scenarios.server import HOST, free_port
from tests.unit.serving import flights
from tests.unit.serving.conftest import DEPARTURES

LATER = "2013-12-01T16:00:00Z"
PATIENCE = 600.0


class Run:
    """`umbel run` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.out = folder / f"run-{self.port}.log"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "300"}
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(self.command(self.port), env=environment, stdout=out, stderr=out)
        self.http = httpx.Client(base_url=f"http://{HOST}:{self.port}", timeout=60)

    def command(self, port: int) -> list[str]:
        umbel = [sys.executable, "-m", "umbel.cli.main", "run", flights.__name__]
        return [*umbel, "--dir", str(self.folder / "umbel"), "--port", str(port), "-w", "1"]

    @property
    def said(self) -> str:
        logs = [path.read_text() for path in (self.folder / "umbel" / "logs").glob("*er.log")]
        return self.out.read_text() + "".join(logs)

    def wait(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.said
            assert self.process.poll() is None, self.said
            time.sleep(0.1)

    def wait_until_ready(self) -> None:
        self.wait(lambda: "curl -s" in self.out.read_text())

    def departures(self) -> int:
        body = {"inputs": ["Origin.origin"], "outputs": ["Origin"], "data": {"Origin.origin": ["JFK"]}, "as_of": LATER}
        found: int = self.http.post("/api/v1/query", json=body).json()["Origin.departures"][0]
        return found

    def log(self) -> None:
        body = {"webhook": "events", "endpoint": "departures", "data": DEPARTURES}
        assert self.http.post("/api/v1/log", json=body).json()["rows"] == 3

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def worker(self) -> psutil.Process:
        (found,) = [each for each in psutil.Process(self.process.pid).children() if "work" in each.cmdline()]
        return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Run]]:
    runs: list[Run] = []

    def begin() -> Run:
        runs.append(Run(tmp_path))
        return runs[-1]

    yield begin
    for each in runs:
        each.http.close()
        if each.process.poll() is None:
            for member in [*each.family(), psutil.Process(each.process.pid)]:
                member.kill()
        each.process.wait()


def test_the_life_of_a_run(start: Callable[[], Run]) -> None:
    run = start()
    run.wait_until_ready()
    said = run.out.read_text()
    assert "umbel: new: DelayOfOrigin, Departure, Greeting, Origin, Plane" in said
    assert re.search(rf"ready after \d+\.\d s: http://{HOST}:{run.port}", said)
    assert f"curl -s http://{HOST}:{run.port}/api/v1/query" in said
    run.log()
    run.wait(lambda: run.departures() == 2)

    # a second one on the same folder would fight with the first
    second = subprocess.run(run.command(free_port()), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert second.returncode == 2
    assert "another supervisor runs on" in second.stderr

    # a worker that is killed is started again, and goes on where it stopped
    run.worker().kill()
    run.log()
    run.wait(lambda: run.departures() == 4)
    assert "worker ended (killed by SIGKILL); starting it again in" in run.out.read_text()

    # when the supervisor is killed, everything goes
    family = run.family()
    assert len(family) >= 4
    run.process.kill()
    assert run.process.wait() == -signal.SIGKILL
    assert psutil.wait_procs(family, timeout=60)[1] == []

    # the next run finds everything as it was; Ctrl-C ends it
    again = start()
    again.wait_until_ready()
    assert again.departures() == 4
    again.log()
    again.wait(lambda: again.departures() == 6)
    family = again.family()
    again.process.send_signal(signal.SIGINT)
    assert again.process.wait(60) == 0
    assert again.out.read_text().splitlines()[-1] == "umbel: stopped"
    _, left = psutil.wait_procs(family, timeout=10)
    assert left == []
