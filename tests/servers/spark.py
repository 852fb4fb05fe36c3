"""A Spark cluster for tests: a master and workers, each a process group of its own as if on a machine of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.scenarios.server import HOST, free_port

PATIENCE = 300.0


@dataclass
class Node:
    """A process of `umbel spark`, with everything it starts.

    Args:
        arguments: of the command.
        log: the file of its output.
    """

    arguments: list[str]
    log: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        command = [sys.executable, "-m", "umbel", "spark", *self.arguments, "--host", HOST, "--web-port", "0"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """Kill it with all its executors and their Python workers, as the loss of the machine would."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@dataclass
class SparkCluster:
    """A master and its workers.

    Args:
        url: of the master.
        master: its process.
        workers: their processes.
    """

    url: str
    master: Node
    workers: list[Node]

    def kill(self) -> None:
        """Kill all of its machines."""
        for node in (*self.workers, self.master):
            node.kill()

    def start(self) -> None:
        """Start it anew: its master knows no application of before."""
        for node in (self.master, *self.workers):
            node.start()

    def wait_for_workers(self, count: int) -> None:
        """Wait until so many workers have registered, ever since the master started."""
        _until(
            lambda: self.master.log.read_text(errors="replace").count("Registering worker") >= count, self.master.log
        )


@contextmanager
def running(folder: Path, workers: int = 2, cores: int = 1) -> Iterator[SparkCluster]:
    """Run a cluster for the length of a block."""
    port = free_port()
    url = f"spark://{HOST}:{port}"
    folder.mkdir(parents=True, exist_ok=True)
    nodes = [
        Node(
            ["worker", url, "--cores", str(cores), "--memory", "2g", "--scratch", str(folder / f"worker-{number}")],
            folder / f"worker-{number}.log",
        )
        for number in range(workers)
    ]
    cluster = SparkCluster(url, Node(["master", "--port", str(port)], folder / "master.log"), nodes)
    try:
        cluster.master.start()
        _until(lambda: _listens(port), cluster.master.log)
        for node in nodes:
            node.start()
        cluster.wait_for_workers(workers)
        yield cluster
    finally:
        for node in (*nodes, cluster.master):
            node.kill()


def _listens(port: int) -> bool:
    with socket.socket() as lookup:
        return lookup.connect_ex((HOST, port)) == 0


def _until(is_true: object, log: Path) -> None:
    assert callable(is_true)
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        if time.monotonic() > deadline:
            raise OSError(f"the cluster does not start:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.1)
