"""Run the worker: the Spark driver of the live job."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import takewhile
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING

from umbel.cli.options import (
    DIRECTORY,
    Accuracy,
    Catalog,
    Conf,
    Directory,
    ExactInstants,
    Master,
    Shards,
    Store,
    Workers,
    open_deployment,
)
from umbel.processes.stopping import ONE_STOP, STOPPED_WITHIN, StopRequest, stop_signals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from umbel.processes.status import Heartbeat
    from umbel.runtime.deployment import Deployment
    from umbel.runtime.planner import Planner
    from umbel.spark.session import Settings

log = logging.getLogger("umbel.work")


def command(
    directory: Directory = DIRECTORY,
    workers: Workers = 2,
    catalog: Catalog = None,
    store: Store = None,
    shards: Shards = None,
    accuracy: Accuracy = None,
    exact_instants: ExactInstants = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Process the data of the committed definitions, without a server, until stopped.

    On this machine, or with --master on a cluster: every machine of it needs umbel, and --dir at the same path.

    Examples:
        umbel work -w 4

        umbel work --master spark://spark.example.com:7077 --dir /shared/umbel --store s3://bucket/state
    """
    from umbel.processes.process_tree import die_with_parent
    from umbel.runtime.limits import Limits
    from umbel.spark.session import Settings
    from umbel.state.passwords import log_redacted

    die_with_parent()
    log_redacted(logging.INFO)
    stop = Stop()
    Limits.from_environment()  # a wrong one is refused now, not by the first batch
    deployment = open_deployment(directory, catalog, store, shards, accuracy, exact_instants)
    deployment.check_home()
    _run_alone(deployment, Settings(deployment.directory, workers, master, options=_options(conf or [])), stop)


def _run_alone(deployment: Deployment, settings: Settings, stop: Stop) -> None:
    """Run the live job as the only worker of the folder."""
    from umbel.catalog.engine import AWAY
    from umbel.errors import UmbelError
    from umbel.processes.locks import alone
    from umbel.processes.process_tree import PARENT
    from umbel.processes.status import Heartbeat, note_last_end
    from umbel.processes.supervision import FINAL

    with alone(deployment.directory, "worker"):
        if PARENT not in os.environ:
            note_last_end(deployment.directory)
        with Heartbeat(deployment.directory) as beat:
            failure = _damage(deployment) or _work(deployment, settings, stop, beat)
            damage = _damage_in(failure) or _damage(deployment) if failure else ""
            cause = damage or cause_in(failure)
            if failure:
                beat.failed(cause)
    if failure:
        with suppress(UmbelError, *AWAY):  # the catalog may be what is damaged or away: that must not hide the cause
            deployment.catalog.record_event("work", "error", cause[:4000])
        if not damage:
            log.error("%s", failure)
        log.error("%s", cause)  # last, where the supervisor looks for it
        sys.exit(FINAL if damage else 1)


def _damage(deployment: Deployment) -> str:
    """Describe missing or damaged data that the job needs to resume; empty if none."""
    from umbel.errors import Damaged
    from umbel.runtime.deployment import JOB

    try:
        deployment.check_state(deep=True)
        last = deployment.catalog.progress(JOB, sys.maxsize)
        deployment.plans().check(last.state.get("plan", 0) if last else 0)
    except Damaged as error:
        return str(error)
    return ""


def _damage_in(failure: str) -> str:
    """Extract the text of a `Damaged` error from a Spark exception; empty if none."""
    found = re.search(r"umbel\.errors\.Damaged: (.*?)(?=\n\s*\n|\n\s+at |\n ?[A-Z=]|$)", failure, re.DOTALL)
    return found.group(1).strip() if found else ""


def cause_in(failure: str) -> str:
    """Return the Python error in the text of a Spark exception, else its first lines.

    Spark puts tracebacks before it, and Java's stack and the plan of the query behind it.
    """
    text = failure.partition("\n=== Streaming Query ===")[0].rpartition("Traceback (most recent call last):")[2]
    lines = text.strip("\n").splitlines()
    begin = next((at for at, line in enumerate(lines) if line and not line.startswith((" ", "\t"))), 0)
    found = list(takewhile(lambda line: line.strip() and not line.startswith("\tat "), lines[begin:]))
    return re.sub(r"^(?:\w+\.)+(?=\w+: )", "", "\n".join(found)).strip()[:4000] or failure[:4000]


def _options(conf: Sequence[str]) -> dict[str, str]:
    """Return settings of Spark given as NAME=VALUE.

    Raises:
        InvalidValue: one has another form.
    """
    from umbel.errors import InvalidValue

    pairs = [text.partition("=") for text in conf]
    for name, equals, _ in pairs:
        if not equals or not name.startswith("spark."):
            raise InvalidValue(f"--conf {name}: not a setting of Spark", hint="--conf spark.executor.memory=2g")
    return {name: value for name, _, value in pairs}


def _work(deployment: Deployment, settings: Settings, stop: Stop, beat: Heartbeat) -> str:
    """Run the live job until it is stopped; return why it failed, if it did."""
    from umbel.runtime.deliveries import Deliveries
    from umbel.runtime.planner import Planner
    from umbel.spark.session import running

    planner, reason = Planner(deployment), ""
    try:
        with planner, running(settings) as session, Deliveries(deployment), _offline(deployment, session):
            reason = _run_job(deployment, session, planner, stop, beat)
    except Exception:  # of many kinds, of Spark's and Py4J's, once the JVM has ended
        if not stop.is_set():
            raise
        return ""  # Spark's JVM got the same signal: it is in the process group
    return "" if stop.is_set() else reason


def _run_job(deployment: Deployment, session: SparkSession, planner: Planner, stop: Stop, beat: Heartbeat) -> str:
    """Run the live job until it is stopped or ends; return why it ended."""
    from umbel.spark.job import LiveJob

    job = LiveJob(
        deployment, session, on_batch=lambda number, _: beat.finished(number), on_begin=beat.began, planner=planner
    )
    query = job.start()
    gc.collect()
    gc.freeze()  # modules are permanent: to traverse them holds a batch up for a tenth of a second
    beat.running()
    stop.has_begun = True
    while not stop.is_set() and query.isActive:
        stop.wait(0.2)
    failure = query.exception()
    # The text comes from Spark's JVM: it must still be running.
    reason = "the streaming query has ended" if failure is None else str(failure)
    job.close()
    return reason


def _offline(deployment: Deployment, session: SparkSession) -> AbstractContextManager[object]:
    """Return the context in which offline queries run on a cluster.

    On one machine servers start a process for them.
    """
    from umbel.spark.offline import OfflineWorker
    from umbel.spark.tasks import is_local

    return nullcontext() if is_local(session) else OfflineWorker(deployment, session)


class Stop(StopRequest):
    """Handles SIGINT, SIGTERM and SIGHUP by requesting a stop.

    Before the job has begun, the signal ends the process and its children (the JVM) at once. Later a second one does, and the
    end of the time to stop: Spark waits for a batch without limit, and a user function in it may take minutes. A thread does it:
    an exception that the handler raises is lost in a callback of the garbage collection.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = False
        self._requested_at = 0.0
        self._again: SimpleQueue[None] = SimpleQueue()
        threading.Thread(target=self._limit, name="stop", daemon=True).start()
        for number in stop_signals():
            signal.signal(number, self._requested)

    def _requested(self, _: int, __: FrameType | None) -> None:
        if not self.is_set():
            self._requested_at = time.monotonic()
        elif time.monotonic() > self._requested_at + ONE_STOP:
            self._again.put(None)
        self.set()

    def _limit(self) -> None:
        """End the process and its children at the time limit, or at a second signal."""
        from umbel.processes.process_tree import end_children
        from umbel.processes.status import stopped

        while not self.wait(threading.TIMEOUT_MAX):
            pass
        has_begun = self.has_begun
        if has_begun:
            with suppress(Empty):
                self._again.get(timeout=STOPPED_WITHIN)
            log.error("the worker does not stop; it is ended, and the next one repeats its batch")
        stopped()
        end_children()
        os._exit(1 if has_begun else 0)
