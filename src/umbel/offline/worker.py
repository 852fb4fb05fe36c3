"""The process that runs one offline query: `python -m umbel.offline.worker DEPLOYMENT REQUEST EPOCH PARENT`.

It is a process of its own because the work is heavy: it must not delay requests, nor take its server down with it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

from sqlalchemy.exc import OperationalError

from umbel.catalog.offline_jobs import FAILED, OfflineJob, OfflineJobs
from umbel.errors import Transient, UmbelError
from umbel.offline.locations import own_folder
from umbel.offline.run import Run
from umbel.processes.process_tree import end_with_parent
from umbel.runtime.deployment import Deployment
from umbel.state.passwords import log_redacted, redacted

EVERY = 1.0
"""Seconds between two beats."""
PAUSE = 2.0
"""Seconds before the second attempt; they double with each."""
NICE = 10

log = logging.getLogger("umbel.offline")


def main(encoded: str, request: str, epoch: str, parent: str) -> None:
    """Run a job that was claimed for this process."""
    log_redacted(logging.WARNING)
    end_with_parent(int(parent))
    os.nice(NICE)
    deployment = Deployment.decode(encoded)
    jobs = OfflineJobs(deployment.catalog)
    job = jobs.get(request)
    if job.epoch == int(epoch):
        threading.Thread(target=_beat, args=(jobs, job), name="beat", daemon=True).start()
        work(deployment, jobs, job)


def work(deployment: Deployment, jobs: OfflineJobs, job: OfflineJob) -> None:
    """Run a job; any error is recorded with it."""
    folder = own_folder(deployment, job)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        Run(deployment, job, folder).finish()
    except (Transient, OSError, OperationalError) as error:
        log.warning("offline query %s: %s", job.id, error)
        jobs.release(job, _described(error), after=PAUSE * 2 ** (job.attempts - 1))
    except Exception as error:
        log.exception("offline query %s", job.id)
        jobs.end(job, FAILED, _described(error))


def _beat(jobs: OfflineJobs, job: OfflineJob) -> None:
    """Send heartbeats until the job is cancelled or claimed by another process.

    Then this process ends at once, whatever it is doing.
    """
    while True:
        time.sleep(EVERY)
        try:
            if not jobs.beat(job):
                os._exit(0)
        except OperationalError as error:
            log.warning("cannot beat: %s", error)


def _described(error: Exception) -> str:
    described = error.described() if isinstance(error, UmbelError) else f"{type(error).__name__}: {error}"
    return f"{redacted(described):.2000}"


if __name__ == "__main__":
    main(*sys.argv[1:])
