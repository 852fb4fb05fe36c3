"""Runs offline jobs, one process at a time: a part of every server process."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from umbel.catalog.offline_jobs import OfflineJob, OfflineJobs
from umbel.offline.locations import own_folder, work_folder
from umbel.runtime.deployment import Deployment

EVERY = 1.0
"""Seconds between two looks for a job."""
WATCHING = 0.1
"""Seconds between two looks at the process of a job."""
PATIENCE = 5.0
"""Seconds a process gets to stop before it is killed."""
TAIL = 4096
"""Bytes of the end of a process's output that are reported."""

log = logging.getLogger("umbel.serve")


class OfflineRunner:
    """Runs offline queries, one after the other.

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
        """Run available jobs until cancelled.

        On cancellation the job in progress is released, so another server can claim it at once.
        """
        await asyncio.to_thread(self._tidy)
        while True:
            job = await self._claimed()
            if job is not None:
                try:
                    await self._work(job)
                except Exception as error:  # noqa: BLE001  its lease runs out, and there are others
                    log.error("offline query %s: %s", job.id, error)
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._new.wait(), EVERY)
            self._new.clear()

    def _tidy(self) -> None:
        """Delete the temporary files of jobs that have ended."""
        for folder in work_folder(self._deployment, "").glob("*"):
            with suppress(Exception):
                if not self._jobs.get(folder.name).is_open:
                    shutil.rmtree(folder, ignore_errors=True)

    async def _claimed(self) -> OfflineJob | None:
        try:
            return await asyncio.to_thread(self._jobs.claim)
        except Exception as error:  # noqa: BLE001  whatever it is, the next look may succeed
            log.error("cannot look for offline queries: %s", error)
            return None

    async def _work(self, job: OfflineJob) -> None:
        folder = own_folder(self._deployment, job)
        try:
            reason = await self._worked(job, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        await asyncio.to_thread(self._tidy)  # others, killed while they worked on it, may have left files, too
        if reason:
            log.error("offline query %s: %s", job.id, reason)
            await asyncio.to_thread(self._jobs.release, job, reason)

    async def _worked(self, job: OfflineJob, folder: Path) -> str:
        """Run a process for a job; return the reason if it failed."""
        said = folder / "log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            process = _started(self._deployment, job, said)
        except OSError as error:
            return f"its process cannot be started: {error}"
        try:
            while process.poll() is None:
                await asyncio.sleep(WATCHING)
        except asyncio.CancelledError:
            await asyncio.to_thread(_stop, process)
            with suppress(Exception):  # its lease runs out in any case
                await asyncio.wait_for(asyncio.to_thread(self._jobs.release, job, counts=False), PATIENCE)
            raise
        return f"its process ended with {process.returncode}: {_tail(said)}".strip() if process.returncode else ""


def _started(deployment: Deployment, job: OfflineJob, said: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "umbel.offline.worker", deployment.encode()]
    command += [job.id, str(job.epoch), str(os.getpid())]
    environment = {name: value for name, value in os.environ.items() if name != "POLARS_MAX_THREADS"}
    with said.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(said: Path) -> str:
    with suppress(OSError):
        return said.read_bytes()[-TAIL:].decode(errors="replace")
    return ""
