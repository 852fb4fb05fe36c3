"""A real collector process of a test, and what it has stored."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.scenarios.server import HOST, free_port
from umbel.collector.bodies import events_of
from umbel.log.collected import LETTERS, SYSTEM
from umbel.log.reading import IngestReader
from umbel.processes.process_tree import die_with

PATIENCE = 240.0


class CollectorProcess:
    """`umbel collect` on a free port.

    Args:
        folder: of the test.
        options: of the command.
        environment: further variables.
    """

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.directory, self.port, self._log = folder / "events", free_port(), folder / "collector.log"
        self._options, self._environment = options, environment or {}
        self.http = httpx.Client(base_url=f"http://{HOST}:{self.port}", timeout=60)
        self.begin()

    def begin(self) -> None:
        """Start the process, without waiting for it."""
        command = [sys.executable, "-m", "umbel.cli.main", "collect", "--dir", str(self.directory)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port), *self._options],
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
                preexec_fn=die_with(os.getpid(), signal.SIGKILL),  # it does not outlive a test that fails
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.http.get("/healthz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.02)
        raise AssertionError(f"the collector does not answer:\n{self.said}")

    def post(self, body: Any, stream: str = "clicks", **headers: str) -> httpx.Response:
        """Send a body: bytes as they are, all else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(
            f"/api/v1/events/{stream}", content=content, headers={"Content-Type": "application/json", **named}
        )

    def raw(self, *parts: bytes, half_close: bool = False) -> bytes:
        """Send bytes as they are; return all that comes back until the server closes or is silent."""
        with socket.create_connection((HOST, self.port), timeout=5) as connection:
            found = b""
            try:
                for part in parts:
                    connection.sendall(part)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
                connection.settimeout(1.0)
                while received := connection.recv(65536):
                    found += received
            except (TimeoutError, ConnectionResetError, BrokenPipeError):
                pass
            return found

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of a metric, 0 where it is not there."""
        total = 0.0
        for line in self.http.get("/metrics").text.splitlines():
            found, _, value = line.rpartition(" ")
            if found.partition("{")[0] == name and all(f'{key}="{each}"' in found for key, each in labels.items()):
                total += float(value)
        return total

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self) -> None:
        """Kill it, and its children by way of that."""
        family = self.family() if self.process.poll() is None else []
        self.process.kill()
        self.process.wait()
        _, left = psutil.wait_procs(family, timeout=10)
        assert left == []

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal; return its exit code."""
        self.process.send_signal(by)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def stored(directory: Path, stream: str = "clicks", *, dead: bool = False) -> list[Any]:
    """Return the events, or the dead letters, of a stream in order."""
    reader = IngestReader(directory, LETTERS if dead else SYSTEM, stream)
    records = (each for part in reader.ranges(reader.start(), reader.end()) for each in reader.open(part))
    return [json.loads(text) for record in records for text in events_of(record.entry.payload)]
