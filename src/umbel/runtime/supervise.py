"""Supervision: keep a few processes running, restart what dies, and leave none behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

PATIENCE = 30.0
"""Seconds a process gets to stop before it is killed."""
STEADY = 30.0
"""Seconds a process must have run for its next death to count as the first."""
LONGEST_WAIT = 30.0
PARENT = "UMBEL_PARENT"
_PR_SET_PDEATHSIG = 1

Tell = Callable[[str], None]


@dataclass(slots=True)
class Child:
    """A process to keep running.

    Args:
        name: for messages.
        arguments: of `umbel`.
        environment: added to ours.
    """

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    begun_at: float = 0.0
    deaths: int = 0
    start_at: float = 0.0

    def start(self) -> None:
        """Start it, in a process group of its own."""
        own = {PARENT: str(os.getpid()), **self.environment}
        command = [sys.executable, "-m", "umbel.cli.main", *self.arguments]
        self.process = subprocess.Popen(command, env={**os.environ, **own}, start_new_session=True)
        self.begun_at = time.monotonic()

    def died(self) -> int | None:
        """Return its exit code if it has ended since the last look; what it left behind is killed."""
        if self.process is None or self.process.poll() is None:
            return None
        code, group = self.process.returncode, self.process.pid
        self.process = None
        _signal_group(group, signal.SIGKILL)
        self.deaths = 1 if time.monotonic() - self.begun_at > STEADY else self.deaths + 1
        self.start_at = time.monotonic() + min(LONGEST_WAIT, 0.25 * 2 ** (self.deaths - 1))
        return code


class Supervisor:
    """Runs processes until it is told to stop.

    Args:
        children: what to run.
        tell: told of starts, deaths and restarts.
    """

    def __init__(self, children: Sequence[Child], tell: Tell) -> None:
        self._children, self._tell = children, tell
        self._is_stopping = False

    def run(self, each_second: Callable[[], None] = lambda: None) -> None:
        """Run until SIGINT or SIGTERM; then stop everything, whatever it takes."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        try:
            for child in self._children:
                child.start()
            looked = 0.0
            while not self._is_stopping:
                self._mind()
                if time.monotonic() - looked >= 1.0:
                    looked = time.monotonic()
                    each_second()
                time.sleep(0.1)
        finally:
            self._end()

    def _mind(self) -> None:
        for child in self._children:
            code = child.died()
            if code is not None and not self._is_stopping:
                wait = max(0.0, child.start_at - time.monotonic())
                self._tell(f"{child.name} ended ({_cause(code)}); starting it again in {wait:.1f} s")
            if child.process is None and time.monotonic() >= child.start_at and not self._is_stopping:
                child.start()

    def _stop(self, number: int, _: FrameType | None) -> None:
        if self._is_stopping:
            for child in self._running():
                _signal_group(child.pid, signal.SIGKILL)
        self._is_stopping = True

    def _end(self) -> None:
        running = self._running()
        for process in running:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        for process in running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._tell(f"process {process.pid} does not stop; killing it")
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()

    def _running(self) -> list[subprocess.Popen[bytes]]:
        return [child.process for child in self._children if child.process is not None]


def die_with_parent() -> None:
    """End this process when the supervisor that started it is gone, however it went."""
    parent = os.environ.get(PARENT)
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGTERM)


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def _cause(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
