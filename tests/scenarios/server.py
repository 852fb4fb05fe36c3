"""A real server process, without a worker, over a deployment of its own."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from tests.deployed import pauses

HOST = "127.0.0.1"
PORTS = 10_000, 32_000
"""Below those that Linux gives to outgoing connections, by default from 32,768 on."""
_CHANCE = random.SystemRandom()  # a test may seed the other one, in several processes alike
_RETURNED: set[int] = set()


class ServerProcess:
    """`umbel serve` on a free port."""

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.folder, self.port, self._log = folder, port or free_port(), folder / "server.log"
        command = [sys.executable, "-m", "umbel.cli.main", "serve", "--dir", str(folder / "umbel")]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen([*command, "--port", str(self.port), *options], stdout=log, stderr=log)
        self.http = httpx.Client(base_url=f"http://{HOST}:{self.port}", timeout=60)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def wait_until_ready(self, within: float = 400) -> None:
        deadline, pausing = time.monotonic() + within, pauses()
        while time.monotonic() < deadline and self.process.poll() is None:
            with suppress(httpx.TransportError):
                if self.http.get("/readyz").status_code == 200:
                    return
            time.sleep(next(pausing))
        raise AssertionError(f"the server is not ready:\n{self.said}")

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def raw(self, *parts: bytes, pause: float = 0.0, half_close: bool = False) -> bytes:
        """Send bytes as they are; return all that comes back until the server closes or is silent."""
        with socket.create_connection((HOST, self.port), timeout=5) as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            found = b""
            connection.settimeout(3)
            try:
                while received := connection.recv(65536):
                    found += received
            except (TimeoutError, ConnectionResetError):
                pass
            return found

    def stop(self) -> None:
        self.http.close()
        family = self.family() if self.process.poll() is None else []
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        _, left = psutil.wait_procs(family, timeout=10)
        assert left == []


def free_port() -> int:
    """Return a port nobody listens on, outside those that the kernel gives to outgoing connections.

    A server that is killed and started again finds it free: a client's connection cannot take it meanwhile. No port is returned
    twice: a server with several listeners gets their ports before it binds the first.
    """
    while True:
        port = _CHANCE.randint(*PORTS)
        if port in _RETURNED:
            continue
        with socket.socket() as listener, suppress(OSError):  # it is taken
            listener.bind((HOST, port))
            _RETURNED.add(port)
            return port
