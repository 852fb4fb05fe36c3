"""Offline queries as Spark jobs: a task for each part of the input.

`python -m umbel.spark.offline DEPLOYMENT PARENT` runs the open jobs of a deployment, with a Spark of its own; a server starts it.
On a cluster the worker runs them, beside the live job, since its executors have the cluster's cores.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from umbel.catalog.offline_jobs import OfflineJob
from umbel.errors import Transient
from umbel.offline.answers import answer_part, answers_of
from umbel.offline.driver import EVERY, LOCK, OfflineDriver, Progress, RunsParts, in_this_process
from umbel.offline.parts import InputPart, PartReport
from umbel.processes.locks import alone
from umbel.processes.process_tree import end_with_parent
from umbel.runtime.deployment import Deployment
from umbel.spark.session import Settings, running
from umbel.spark.tasks import encoded, opened
from umbel.state.passwords import log_redacted, redacted

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

POOL = "offline"
"""The pool of Spark's scheduler; `pools.xml` lets the live job's tasks go first."""
HERE = 1
"""Jobs of at most so many parts are answered by the driver: Spark takes seconds to start."""
SLOTS = 8
"""The largest number of tasks at once on one machine; each is a process with its own share of the history."""
NICE = 10
IDLE = 30.0
"""Seconds after its last part for which a Python worker retains the history that it has read for a job."""

_idle: list[threading.Timer] = []

log = logging.getLogger("umbel.offline")


class SparkParts:
    """Answers the parts of a job as one Spark job.

    Args:
        deployment: the deployment to query.
        session: Spark.
    """

    def __init__(self, deployment: Deployment, session: SparkSession) -> None:
        self._deployment, self._session = deployment, session

    def __call__(self, job: OfflineJob, parts: Sequence[InputPart], progress: Progress) -> None:
        if not parts:
            return
        reports = Reports(self._session)
        failure = list[Exception]()

        def run() -> None:
            try:
                self._run(job.id, parts, reports)
            except Exception as error:  # noqa: BLE001  it is raised below
                failure.append(error)

        thread = threading.Thread(target=run, name=f"offline-{job.id}", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(EVERY / 4)
                reports.add_to(progress)
                progress.look()
            reports.add_to(progress)  # those that arrived since the last look
        finally:
            while thread.is_alive():  # it may not have begun the job yet
                self._session.sparkContext.cancelJobGroup(job.id)
                thread.join(EVERY)
        if failure:
            raise Transient(reason_of(failure[0])) from None

    def _run(self, request: str, parts: Sequence[InputPart], reports: Reports) -> None:
        """Run the Spark job; reports of parts arrive while it runs."""
        context = self._session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", POOL)
        context.setJobGroup(request, f"offline query {request}", interruptOnCancel=True)
        task = _task(encoded(self._deployment, self._session), str(Path.cwd()), request, reports.total)
        context.parallelize(parts, len(parts)).foreach(task)


class Reports:
    """The reports of tasks that have ended; each arrives once.

    Args:
        session: Spark.
    """

    def __init__(self, session: SparkSession) -> None:
        from pyspark.accumulators import AddingAccumulatorParam

        nothing: Any = ()  # pyspark knows the types that add themselves to others as numbers and lists
        self.total: Accumulator[Any] = session.sparkContext.accumulator(nothing, AddingAccumulatorParam(nothing))
        self._seen = 0

    def add_to(self, progress: Progress) -> None:
        """Add the reports that have arrived since the last call.

        Raises:
            Terminal: the query fails, or was cancelled.
        """
        found: tuple[PartReport, ...] = self.total.value[self._seen :]
        self._seen += len(found)
        for each in found:
            progress.add(each)


def _task(deployment: str, folder: str, request: str, reports: Accumulator[Any]) -> Callable[[InputPart], None]:
    """Return what a task does with its part."""

    def answer(part: InputPart) -> None:
        while _idle:
            _idle.pop().cancel()
        try:
            reports.add((answer_part(opened(deployment, folder), request, part),))
        finally:
            _forget_later()

    return answer


def _forget_later() -> None:
    """Give back the job's history unless another part comes soon.

    Tasks of the live job use this process, too.
    """
    _idle.append(threading.Timer(IDLE, answers_of.cache_clear))
    _idle[-1].daemon = True
    _idle[-1].start()


def reason_of(error: BaseException) -> str:
    """Return the reason a Spark job failed for.

    It is that of the last error of a task, if it was umbel's.
    """
    text = str(error)
    own = re.findall(r"^\s*(?:\w+\.)*Transient: (.+)$", text, re.MULTILINE)
    aborted = re.findall(r"SparkException: (.+)$", text, re.MULTILINE)
    return f"{redacted(next(iter([*own[-1:], *aborted, *text.splitlines()]), 'Spark failed')):.2000}"


class OfflineWorker:
    """Runs offline queries on the cluster of a worker's session, beside the live job.

    Args:
        deployment: the deployment to query.
        session: Spark, on a cluster.
    """

    def __init__(self, deployment: Deployment, session: SparkSession) -> None:
        self._deployment, self._stop = deployment, threading.Event()
        self._driver = OfflineDriver(deployment, SparkParts(deployment, session), self._stop)
        self._thread = threading.Thread(target=self._run, name="offline", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(Transient), alone(self._deployment.directory, LOCK):
                self._follow()
            self._stop.wait(EVERY)

    def _follow(self) -> None:
        """Run jobs as they come."""
        while not self._stop.wait(EVERY):
            try:
                self._driver.run_open()
            except Exception as error:  # noqa: BLE001  such as a catalog that is away for a while
                log.error("cannot run offline queries: %s", redacted(str(error)))


def on_this_machine(deployment: Deployment, closing: ExitStack) -> RunsParts:
    """Return a function that answers small jobs in this process, others by Spark.

    Spark is started for the first of these.
    """
    here, spark = in_this_process(deployment, _exit), list[SparkParts]()

    def run(job: OfflineJob, parts: Sequence[InputPart], progress: Progress) -> None:
        if len(parts) <= HERE:
            here(job, parts, progress)
            return
        if not spark:
            slots = min(os.cpu_count() or 1, SLOTS)
            spark.append(SparkParts(deployment, closing.enter_context(running(Settings(deployment.directory, slots)))))
        spark[0](job, parts, progress)

    return run


def _exit() -> None:
    os._exit(0)  # whatever it is doing; the server starts another process for other jobs


def main(encoded_deployment: str, parent: str) -> None:
    """Run the open jobs of a deployment, unless another process does."""
    log_redacted(logging.WARNING)
    end_with_parent(int(parent))
    os.nice(NICE)
    deployment = Deployment.decode(encoded_deployment)
    with suppress(Transient), alone(deployment.directory, LOCK), ExitStack() as closing:
        OfflineDriver(deployment, on_this_machine(deployment, closing)).run_open()


if __name__ == "__main__":
    main(*sys.argv[1:])
