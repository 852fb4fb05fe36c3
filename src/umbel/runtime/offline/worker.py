"""The process that works on one offline query: `python -m umbel.runtime.offline.worker DEPLOYMENT REQUEST EPOCH PARENT`.

A process of its own, because what it does is heavy: requests are not to wait for it, nor their server to go with it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

from sqlalchemy.exc import OperationalError

from umbel.catalog.offline import FAILED, OfflineJob, OfflineJobs
from umbel.errors import Transient, UmbelError
from umbel.runtime.deployment import Deployment
from umbel.runtime.kinship import end_with_parent
from umbel.runtime.offline.places import own_folder
from umbel.runtime.offline.run import Run

EVERY = 1.0
"""Seconds between two beats."""
PAUSE = 2.0
"""Seconds before the second attempt; they double with each."""
NICE = 10

log = logging.getLogger("umbel.offline")


def main(encoded: str, request: str, epoch: str, parent: str) -> None:
    """Work on a job that was claimed for this process."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    end_with_parent(int(parent))
    os.nice(NICE)
    deployment = Deployment.decode(encoded)
    jobs = OfflineJobs(deployment.catalog)
    job = jobs.get(request)
    if job.epoch == int(epoch):
        threading.Thread(target=_beat, args=(jobs, job), name="beat", daemon=True).start()
        work(deployment, jobs, job)


def work(deployment: Deployment, jobs: OfflineJobs, job: OfflineJob) -> None:
    """Work on a job; whatever goes wrong is recorded with it."""
    folder = own_folder(deployment, job)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        Run(deployment, job, folder).finish()
    except (Transient, OSError, OperationalError) as error:
        log.warning("offline query %s: %s", job.id, error)
        jobs.release(job, _told(error), after=PAUSE * 2 ** (job.attempts - 1))
    except Exception as error:
        log.exception("offline query %s", job.id)
        jobs.end(job, FAILED, _told(error))


def _beat(jobs: OfflineJobs, job: OfflineJob) -> None:
    """Beat until the job is cancelled or another's: then this process has nothing left to do, whatever it is doing."""
    while True:
        time.sleep(EVERY)
        try:
            if not jobs.beat(job):
                os._exit(0)
        except OperationalError as error:
            log.warning("cannot beat: %s", error)


def _told(error: Exception) -> str:
    told = error.told() if isinstance(error, UmbelError) else f"{type(error).__name__}: {error}"
    return f"{told:.2000}"


if __name__ == "__main__":
    main(*sys.argv[1:])
