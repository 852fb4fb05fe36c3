"""Several server processes under one parent, restarted when they end.

The parent gives up when none of them starts.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from uvicorn.supervisors.multiprocess import Multiprocess, Process

from umbel.errors import Transient
from umbel.processes.stopping import ONE_STOP, STOPPED_WITHIN, stop_signals

if TYPE_CHECKING:
    from socket import socket

    from uvicorn import Config

REASONS = "UMBEL_START_FAILURES"
"""The environment variable that names the folder in which a process that cannot start says why."""
TRIES = 3
"""Failed starts in a row, while no process serves, after which the parent gives up."""
LONGEST_WAIT = 30.0
"""Seconds between two attempts at the most, while others answer."""
TAIL = 2000
"""Characters of a reason that are shown."""


class Servers(Multiprocess):
    """The processes of a server.

    Args:
        config: uvicorn's.
        sockets: the sockets they listen on.
        folder: processes that cannot start write the reason to a file in it.
    """

    def __init__(self, config: Config, sockets: list[socket], folder: Path) -> None:
        is_handled = signal.SIGHUP in stop_signals()
        super().__init__(config, sockets)
        if not is_handled:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._folder = folder
        self._started: set[int | None] = set()
        self._failed, self._next_at, self._reason = 0, 0.0, ""

    def run(self) -> None:
        """Run and restart the processes until stopped.

        Raises:
            Transient: none of them starts.
        """
        super().run()
        if self._failed >= TRIES:
            raise Transient(
                f"the server does not start; gave up after {self._failed} failed starts in a row: {self._reason}",
                hint="umbel doctor looks for what is wrong",
            )

    def handle_hup(self) -> None:
        """Stop: uvicorn would replace the processes, and outlive the terminal that was closed."""
        self.should_exit.set()

    def join_all(self) -> None:
        """Wait for the processes; kill them at the time limit, or at a second signal."""
        begun = time.monotonic()
        for process in self.processes:
            while process.process.is_alive() and time.monotonic() < begun + STOPPED_WITHIN:
                process.process.join(0.05)
                if time.monotonic() < begun + ONE_STOP:
                    self.signal_queue.clear()
                elif self.signal_queue:
                    break
            process.process.kill()
            process.join()

    def keep_subprocess_alive(self) -> None:
        """Replace processes that have ended or hang; give up after repeated failures."""
        for index, process in enumerate(self.processes):
            if self.should_exit.is_set() or self._answers(process):
                continue
            if not process.parent_conn.closed:
                self._bury(process)
            if self._failed >= TRIES and not self._is_served():
                self.should_exit.set()
            elif time.monotonic() >= self._next_at:
                self.processes[index] = Process(self.config, self.sockets)
                self.processes[index].start()

    def _bury(self, process: Process) -> None:
        """End a process that does not respond; count it if it never started."""
        process.kill()
        process.join()
        if process.pid in self._started:
            self._started.discard(process.pid)
            return
        self._failed += 1
        self._reason = self._described(process)
        self._next_at = time.monotonic() + min(LONGEST_WAIT, 0.25 * 2**self._failed)

    def _is_served(self) -> bool:
        return any(each.pid in self._started and each.exitcode is None for each in self.processes)

    def _answers(self, process: Process) -> bool:
        """Return whether a process responds; note that it has started."""
        if not process.process.is_alive():
            return False
        deadline = time.monotonic() + self.config.timeout_worker_healthcheck
        try:
            process.parent_conn.send(b"ping")
            # In short steps: this end of the pipe does not report that the process has ended meanwhile.
            while not process.parent_conn.poll(0.1):
                if self.signal_queue:
                    return True
                if not process.process.is_alive() or time.monotonic() > deadline:
                    return False
            has_started = process.parent_conn.recv()
        except (OSError, EOFError):
            return False
        if has_started and process.pid not in self._started:
            self._started.add(process.pid)
            self._failed = 0
        return True

    def _described(self, process: Process) -> str:
        said = self._folder / str(process.pid)
        if said.exists():
            return said.read_text(errors="replace")[-TAIL:]
        return f"process {process.pid} ended with exit code {process.exitcode}"


def note_start_failure(error: BaseException) -> None:
    """Write the reason of a failed start to the parent's folder."""
    folder = os.environ.get(REASONS)
    if folder:
        lines = traceback.extract_tb(error.__traceback__)
        last = f" ({lines[-1].filename}:{lines[-1].lineno})" if lines else ""
        Path(folder, str(os.getpid())).write_text(f"{type(error).__name__}: {error}{last}")
