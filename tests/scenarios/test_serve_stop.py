"""`umbel serve` ends in order with its terminal, and does not wait for a process that hangs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.scenarios.server import ServerProcess
from umbel.processes.stopping import STOPPED_WITHIN


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], ServerProcess]]:
    """Return what starts a server with a number of processes; all of them are ended after the test."""
    found: list[ServerProcess] = []

    def begin(servers: str) -> ServerProcess:
        found.append(ServerProcess(tmp_path, "--servers", servers))
        found[-1].wait_until_ready()
        return found[-1]

    yield begin
    for each in found:
        each.http.close()
        for left in [*each.family(), each.process] if each.process.poll() is None else []:
            with suppress(psutil.NoSuchProcess):
                left.kill()
        each.process.wait()


def test_a_closed_terminal_ends_a_server_in_order(tmp_path: Path, start: Callable[[str], ServerProcess]) -> None:
    running = start("1")
    running.process.send_signal(signal.SIGHUP)
    assert running.process.wait(60) == 0
    assert not (tmp_path / "umbel" / "token").exists()


@pytest.mark.nightly
def test_a_second_signal_ends_a_server_process_that_hangs(start: Callable[[str], ServerProcess]) -> None:
    running = start("2")
    hung = next(each for each in running.family() if "spawn_main" in " ".join(each.cmdline()))
    hung.suspend()
    before = time.monotonic()
    running.process.send_signal(signal.SIGHUP)
    while hung.is_running() and time.monotonic() < before + STOPPED_WITHIN:
        running.process.send_signal(signal.SIGHUP)
        time.sleep(0.05)
    assert running.process.wait(60) == 0
    assert time.monotonic() < before + STOPPED_WITHIN
    assert not hung.is_running()
