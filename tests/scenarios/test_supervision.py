"""`umbel run` as processes: who may commit, what is left when it is killed while it starts, and the report on its worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.deployed import PATIENCE, Deployed, wait_until
from tests.misbehaving import definitions, events
from tests.scenarios.server import HOST, ServerProcess, free_port
from tests.unit.serving import flights
from tests.unit.serving.conftest import DEPARTURES
from umbel.api.commit import check_commit
from umbel.processes.locks import alone
from umbel.processes.stopping import STOPPED_WITHIN
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment


class Marked:
    """A command of umbel whose processes are recognised by a variable of their environment."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.mark, self.folder, self.out = uuid.uuid4().hex, folder, folder / "out"
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "300", "UMBEL_TEST_MARK": self.mark}
        command = [sys.executable, "-m", "umbel.cli.main", *arguments, "--dir", str(folder / "umbel")]
        with self.out.open("ab") as out:
            self.process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)

    def said(self) -> str:
        logs = (self.folder / "umbel" / "logs").glob("*er.log")
        return self.out.read_text() + "".join(path.read_text() for path in logs)

    def processes(self) -> list[psutil.Process]:
        return [each for each in psutil.process_iter() if self._is_marked(each)]

    def runs(self, word: str) -> bool:
        for each in self.processes():
            try:
                if any(word in part for part in each.cmdline()):
                    return True
            except psutil.Error:
                continue
        return False

    def _is_marked(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("UMBEL_TEST_MARK") == self.mark and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def end(self) -> None:
        for each in self.processes():
            each.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Marked]]:
    started: list[Marked] = []

    def begin(*arguments: str) -> Marked:
        started.append(Marked(tmp_path, *arguments))
        return started[-1]

    yield begin
    for each in started:
        each.end()


def test_a_run_that_is_refused_has_committed_nothing(tmp_path: Path, start: Callable[..., Marked]) -> None:
    deployment = Deployment.at(tmp_path / "umbel", shards=1)
    with alone(deployment.directory, "supervisor"):
        second = start("run", flights.__name__, "--port", str(free_port()))
        assert second.process.wait(PATIENCE) == 2
    assert "another supervisor runs on" in second.said()
    assert deployment.catalog.latest() == 0


@pytest.mark.parametrize("word", ["work", "org.apache.spark"])
def test_a_supervisor_that_is_killed_while_it_starts_leaves_nobody(start: Callable[..., Marked], word: str) -> None:
    run = start("run", flights.__name__, "--port", str(free_port()), "--servers", "2", "-w", "1")
    wait_until(lambda: run.runs(word), run.said)
    run.process.kill()
    run.process.wait()
    wait_until(lambda: not run.processes(), lambda: str([each.cmdline()[:4] for each in run.processes()]))


def test_a_worker_that_is_stopped_while_it_starts_leaves_no_jvm(tmp_path: Path, start: Callable[..., Marked]) -> None:
    Deployment.at(tmp_path / "umbel", shards=1)
    worker = start("work", "-w", "1")
    wait_until(lambda: worker.runs("org.apache.spark"), worker.said)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(PATIENCE) == 0
    wait_until(lambda: not worker.processes())
    assert '"state": "stopped"' in (tmp_path / "umbel" / "work.json").read_text()


def test_a_worker_whose_process_group_is_stopped_ends_in_order(tmp_path: Path, start: Callable[..., Marked]) -> None:
    """As `timeout` and systemd stop it: where Spark's JVM got the signal first, it had ended before the worker could stop it."""
    Deployment.at(tmp_path / "umbel", shards=1)
    status = tmp_path / "umbel" / "work.json"
    worker = start("work", "-w", "1")
    wait_until(lambda: status.exists() and '"state": "running"' in status.read_text(), worker.said)
    for each in worker.processes():
        with suppress(psutil.NoSuchProcess):  # one that ran for a moment
            if each.pid != worker.process.pid:
                each.terminate()
    time.sleep(2)  # Spark's JVM would have ended by then
    assert worker.runs("org.apache.spark"), worker.said()
    worker.process.send_signal(signal.SIGINT)  # pyspark has a handler of its own, which is not to be called
    assert worker.process.wait(PATIENCE) == 0, worker.said()
    assert (
        "umbel/cli" not in worker.said()
    )  # no traceback; Spark's runner of sources prints one where its JVM ends first
    assert '"state": "stopped"' in status.read_text()
    assert not (tmp_path / "umbel" / "logs" / "spark.log").read_text()  # it waited for a plan: no error, no warning
    wait_until(lambda: not worker.processes())


def test_a_second_signal_ends_a_worker_whose_batch_does_not_end(tmp_path: Path, start: Callable[..., Marked]) -> None:
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit(definitions())
    deployed.log("events", events("sleep", "good"))
    worker = start("work", "-w", "1")
    wait_until(
        lambda: any(each.read_bytes().strip() for each in (tmp_path / "umbel" / "running").glob("*")), worker.said
    )
    before = time.monotonic()
    worker.process.send_signal(signal.SIGINT)
    while worker.process.poll() is None and time.monotonic() < before + STOPPED_WITHIN:
        worker.process.send_signal(signal.SIGHUP)  # those of the first second are the same one
        time.sleep(0.05)
    assert worker.process.wait(PATIENCE) == 1, worker.said()
    assert time.monotonic() < before + STOPPED_WITHIN
    assert "the worker does not stop" in worker.said()
    wait_until(lambda: not worker.processes())
    assert '"state": "stopped"' in (tmp_path / "umbel" / "work.json").read_text()
    deployed.close()


def doctored(directory: Path) -> str:
    """Return what `umbel doctor` says of a folder in which something is wrong."""
    doctor = [sys.executable, "-m", "umbel.cli.main", "doctor", "--dir", str(directory), "--host", HOST]
    seen = subprocess.run(doctor, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert seen.returncode == 1, seen.stdout
    return " ".join(seen.stdout.split())


def kill_a_worker(start: Callable[..., Marked], directory: Path) -> None:
    """Start a worker and kill it when it has said that it starts."""
    worker = start("work", "-w", "1")
    wait_until(lambda: f'"process": {worker.process.pid}' in (directory / "work.json").read_text())
    worker.end()


@pytest.mark.nightly
def test_the_reported_state_of_the_worker(tmp_path: Path, start: Callable[..., Marked]) -> None:
    """One that was never there, that runs, that is paused, that was killed, that is started again and again."""
    deployment = Deployment.at(tmp_path / "umbel", shards=1)
    commit(deployment, check_commit(flights.DATASETS, flights.FEATURESETS))
    server = ServerProcess(tmp_path)
    try:
        server.wait_until_ready()

        def reported() -> str:
            found: httpx.Response = server.http.get("/readyz?deep")
            assert (found.status_code == 200) == (found.json()["worker"]["state"] == "running"), found.text
            assert server.http.get("/readyz").status_code == 200
            return str(found.json()["worker"]["state"])

        assert reported() == "never started"
        worker = start("work", "-w", "1")
        wait_until(lambda: reported() == "running", worker.said)
        server.http.post("/api/v1/log", json={"webhook": "events", "endpoint": "departures", "data": DEPARTURES})
        wait_until(lambda: server.http.get("/readyz?deep").json()["worker"]["batch"] is not None, worker.said)
        wait_until(lambda: server.http.get("/readyz?deep").json()["lag"]["rows"] == 0, worker.said)
        assert 'umbel_worker_state{state="running"} 1.0' in server.http.get("/api/v1/metrics").text
        worker.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: reported() == "stuck")
        assert "no sign of life" in doctored(deployment.directory)
        worker.end()
        wait_until(lambda: reported() == "stopped")
        for _ in range(3):
            kill_a_worker(start, deployment.directory)
        start("work", "-w", "1")
        wait_until(lambda: reported() == "looping")
        found = server.http.get("/readyz?deep").json()
        assert "the worker is looping (it has ended" in found["message"]
        assert found["worker"]["restarts"] >= 3
    finally:
        server.stop()
