"""Somebody with an empty folder, who saves files and types commands as a page of the documentation says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.docs.tutorial import Change, Command, is_printed
from tests.scenarios.server import free_port

PATIENCE = 600.0
PORT = "8425"
"""The port that the page speaks of; the test takes a free one."""


class Reader:
    """A folder, an environment, and at most one `umbel run` in it.

    Args:
        folder: where commands are typed.
        page: the name of the page, for messages.
        settings: further variables of the environment.
    """

    def __init__(self, folder: Path, page: str, **settings: str) -> None:
        self.folder, self.page, self.port = folder, page, str(free_port())
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        own = {name: value for name, value in os.environ.items() if not name.startswith(("UMBEL_", "PYTEST_"))}
        url = f"http://localhost:{self.port}"
        self.environment = {**own, "PATH": path, "UMBEL_PORT": self.port, "UMBEL_URL": url, "COLUMNS": "100"}
        self.environment |= settings
        self.running: subprocess.Popen[bytes] | None = None

    def save(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text.replace(PORT, self.port), encoding="utf-8")

    def change(self, change: Change) -> None:
        path = self.folder / change.name
        path.write_text(change.applied(path.read_text(encoding="utf-8")), encoding="utf-8")

    def type(self, command: Command) -> int:
        """Run a command, compare what it prints with what is shown, and return its exit code."""
        text, where = command.text.replace(PORT, self.port), f"{self.page}:{command.line}: {command.text}"
        if text.startswith("umbel run"):
            self.start(text, command, where)
            return 0
        ran = subprocess.run(
            ["bash", "-c", text], cwd=self.folder, env=self.environment, timeout=PATIENCE, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if command.output is not None:
            assert is_printed(command.output.replace(PORT, self.port), ran.stdout), f"{where} prints\n{ran.stdout}"
        return ran.returncode

    def start(self, text: str, command: Command, where: str) -> None:
        assert self.running is None, f"{where}: it runs already"
        log, shown = self.folder / "run.log", (command.output or "").replace(PORT, self.port)
        with log.open("wb") as out:
            self.running = subprocess.Popen(
                text.split(), cwd=self.folder, env=self.environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + PATIENCE
        while not is_printed(shown, log.read_text(encoding="utf-8")):
            said = log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, f"{where} prints\n{said}"
            assert self.running.poll() is None, f"{where} ended:\n{said}"
            time.sleep(0.1)

    def stop(self) -> None:
        if self.running is not None:
            family = psutil.Process(self.running.pid).children(recursive=True) if self.running.poll() is None else []
            self.running.send_signal(signal.SIGINT)
            try:
                self.running.wait(60)
            except subprocess.TimeoutExpired:
                self.running.kill()
            _, left = psutil.wait_procs(family, timeout=20)
            for each in left:
                each.kill()
            assert left == []
