"""Starts the process that runs offline jobs; a part of every server process."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from umbel.catalog.offline_jobs import OfflineJobs
from umbel.errors import Transient
from umbel.offline.driver import LOCK
from umbel.offline.locations import work_folder
from umbel.processes.locks import alone
from umbel.runtime.deployment import Deployment

DRIVER = "umbel.spark.offline"
"""The module of that process; it loads Spark, which a server must not."""
EVERY = 1.0
"""Seconds between two looks for a job."""
WATCHING = 0.1
"""Seconds between two looks at the process."""
PATIENCE = 5.0
"""Seconds the process gets to stop before it is killed."""
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that stop the process; an end by another one is a failed attempt."""
TAIL = 4096
"""Bytes of the end of its output that are reported."""

log = logging.getLogger("umbel.serve")


class OfflineRunner:
    """Runs a driver of offline queries when there are open jobs and no driver.

    Args:
        deployment: the deployment of the jobs.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment, self._jobs = deployment, OfflineJobs(deployment.catalog)
        self._new = asyncio.Event()

    def look(self) -> None:
        """Poll for a job at once, because one was submitted."""
        self._new.set()

    async def run(self) -> None:
        """Run drivers until cancelled."""
        await asyncio.to_thread(self._tidy)
        while True:
            try:
                if await asyncio.to_thread(self._is_needed):
                    await self._drive()
                    await asyncio.to_thread(self._tidy)
            except Exception as error:  # noqa: BLE001  whatever it is, the next look may succeed
                log.error("offline queries: %s", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._new.wait(), EVERY)
            self._new.clear()

    def _is_needed(self) -> bool:
        """Return True if there are open jobs, and no process has the lock.

        On another machine than the worker's nothing is needed: jobs read the logs, and end where these are.
        """
        if not self._jobs.has_open() or self._deployment.is_away:
            return False
        with suppress(Transient), alone(self._deployment.directory, LOCK):
            return True
        return False

    def _tidy(self) -> None:
        """Delete the temporary files of jobs that have ended."""
        for folder in work_folder(self._deployment, "").glob("*"):
            with suppress(Exception):
                if not self._jobs.is_open(folder.name):
                    shutil.rmtree(folder, ignore_errors=True)

    async def _drive(self) -> None:
        """Run a driver to its end; stop it on cancellation."""
        output = self._deployment.directory / "logs" / "offline.log"
        output.parent.mkdir(parents=True, exist_ok=True)
        process = _started(self._deployment, output)
        try:
            while process.poll() is None:
                await asyncio.sleep(WATCHING)
        except asyncio.CancelledError:
            await asyncio.to_thread(_stop, process)
            with suppress(Exception):  # a stop is no failed attempt
                await asyncio.wait_for(asyncio.to_thread(self._jobs.interrupted, counts=False), PATIENCE)
            raise
        if process.returncode:
            reason = f"its process ended with {process.returncode}: {_tail(output)}".strip()
            log.error("offline queries: %s", reason)
            is_stopped = -process.returncode in STOPS  # such as by Ctrl-C, which all processes of a terminal get
            await asyncio.to_thread(self._jobs.interrupted, reason, counts=not is_stopped)


def _started(deployment: Deployment, output: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", DRIVER, deployment.encode(), str(os.getpid())]
    environment = {name: value for name, value in os.environ.items() if name != "POLARS_MAX_THREADS"}
    with output.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=environment)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(output: Path) -> str:
    with suppress(OSError):
        return output.read_bytes()[-TAIL:].decode(errors="replace")
    return ""
