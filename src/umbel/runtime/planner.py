"""The process that plans the live job's batches: `python -m umbel.runtime.planner FD PARENT DEPLOYMENT`.

Connectors read ahead there, beside the batches, and one that ends its interpreter ends no batch at work.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Self

from umbel.isolation.forkserver import ENDING
from umbel.processes.process_tree import die_with
from umbel.processes.user_folder import SAFE
from umbel.runtime.reporting import report_event

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

EVERY = 0.1
"""Seconds between two polls of the sources, at least: rows that come meanwhile are one batch."""
TRIES = 3
"""How often the process may end during one request before that fails."""
ENDED_WITHIN = 2.0
"""Seconds that the process has to end in order, so that connectors know that they are not the reason."""
PLANNED, FAILED = "planned", "failed"


class PlanningFailed(Exception):
    """Batches cannot be planned; the text ends with the traceback of the error."""


class JobStopped(PlanningFailed):
    """The job was stopped while a batch waited for its plan."""


class Planner:
    """Plans batches in a process of its own.

    A context manager: the process ends with it. One thread asks for plans; any may close it.

    Args:
        deployment: whose sources are polled.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._closing = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the process, if it is not running."""
        self._started()

    def plan_after(self, number: int, is_active: Callable[[], bool]) -> int | None:
        """Wait for the plan that follows another one; return its number.

        Args:
            number: of the plan before, 0 for none.
            is_active: asked all the time; None is returned once it is false.

        Raises:
            PlanningFailed: the sources or the plans cannot be read, or the process ended each time.
        """
        for _ in range(TRIES):
            try:
                return self._answer(number, is_active)
            except (EOFError, OSError):  # a connector may have ended it
                ended = self.close()
                if not is_active():
                    return None
                report = f"the process that reads sources and plans batches ended {ended}"
                report_event(self._deployment.catalog, report)
        raise PlanningFailed(f"{report}, {TRIES} times in a row: is the code of a connector the reason?")

    def _answer(self, number: int, is_active: Callable[[], bool]) -> int | None:
        connection = self._started()
        connection.send(number)
        while not connection.poll(EVERY):
            if not is_active():
                self.close()
                return None
        kind, found = connection.recv()
        if kind == FAILED:
            raise PlanningFailed(found)
        return int(found)

    def close(self) -> str:
        """End the process, if it runs; return how it ended."""
        with self._closing:
            connection, process = self._connection, self._process
            self._connection = self._process = None
        if connection is None or process is None:
            return "before"
        connection.close()
        try:
            ended = process.wait(ENDED_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            ended = process.wait()
        return f"by {signal.Signals(-ended).name}" if ended < 0 else f"with exit code {ended}"

    def _started(self) -> Connection:
        if self._connection is None:
            ours, theirs = socket.socketpair()
            # to the kernel the parent is the thread that starts it: another one may end before the process
            is_main = threading.current_thread() is threading.main_thread()
            with theirs:
                parent = os.getpid() if is_main else 0
                command = [sys.executable, "-m", __name__, str(theirs.fileno()), str(parent), self._deployment.encode()]
                self._process = subprocess.Popen(
                    command,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, SAFE: "1"},
                )
            self._connection = Connection(ours.detach())
        return self._connection


def main(descriptor: int, parent: int, encoded: str) -> None:
    """Answer requests for plans until the other side closes.

    A request is the number of a plan, the answer that of the next one.

    Args:
        descriptor: of the connection.
        parent: the process with which this one ends; 0 for none.
        encoded: the deployment.
    """
    if parent:
        signal.signal(signal.SIGUSR1, _end)
        die_with(parent, signal.SIGUSR1)()
    from umbel.runtime.deployment import Deployment
    from umbel.state.passwords import log_redacted

    log_redacted(logging.WARNING)
    connection, polled = Connection(descriptor), -math.inf
    plans = Deployment.decode(encoded).plans()
    gc.collect()
    gc.freeze()
    while True:
        before = number = connection.recv()
        try:
            plans.forget(before)
            while number == before:
                if connection.poll(max(0.0, polled + EVERY - time.monotonic())):
                    return  # it was closed
                polled = time.monotonic()
                number = plans.next(before)
        except BaseException:  # noqa: BLE001 - a connector may raise any, and its traceback would go to a log alone
            connection.send((FAILED, traceback.format_exc()))
        else:
            connection.send((PLANNED, number))


def _end(*_: object) -> None:
    """End in order, but soon: the next worker's process plans from now on."""
    late = threading.Timer(ENDED_WITHIN, os._exit, [1])
    late.daemon = True
    late.start()
    sys.exit(1)


if __name__ == "__main__":
    faulthandler.enable()
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)  # signals to the group of processes: the worker ends this one
    with suppress(EOFError, ConnectionError):
        main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
