"""A watch over the executors of a cluster.

A master of Spark's standalone cluster that starts anew, without recovery, does not know the applications of the one before. It
ends their executors and starts no others, and Spark's driver waits for ever. A job without executors is cancelled after a while:
the worker fails, starts again, and registers with the master there is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 30.0
"""Seconds after which a job that has lost all executors is cancelled."""
INTERVAL = 2.0

log = logging.getLogger("umbel.work")


@dataclass(slots=True)
class Absence:
    """The time that jobs have been waiting without executors.

    Executors that never came are no loss: a cluster may be busy.

    Args:
        patience: seconds to wait for others.
    """

    patience: float = PATIENCE
    _had: bool = field(default=False, init=False)
    _since: float | None = field(default=None, init=False)

    def is_over(self, executors: int, jobs: int, now: float) -> bool:
        """Return whether jobs have waited long enough for executors that are gone.

        Args:
            executors: their number.
            jobs: the number of active jobs.
            now: monotonic seconds.
        """
        if executors or not jobs:
            self._had, self._since = self._had or bool(executors), None
            return False
        if not self._had:
            return False
        self._since = now if self._since is None else self._since
        return now - self._since >= self.patience


class ExecutorWatch:
    """Cancels jobs of a standalone cluster that have lost all their executors.

    Args:
        session: Spark; on this machine and on clusters of other kinds nothing is watched.
        report: gets the text that tells so.
    """

    def __init__(self, session: SparkSession, report: Callable[[str], None]) -> None:
        self._session, self._report = session, report
        self._stopping = threading.Event()

    def start(self) -> None:
        """Watch in a thread."""
        if (self._session.conf.get("spark.master") or "").startswith("spark://"):
            threading.Thread(target=self._run, name="executor-watch", daemon=True).start()

    def stop(self) -> None:
        """End the watch."""
        self._stopping.set()

    def _run(self) -> None:
        absence = Absence()
        try:
            while not self._stopping.wait(INTERVAL):
                if absence.is_over(*self._counts(), time.monotonic()):
                    text = f"the cluster has had no executors for {PATIENCE:g} s: the worker registers with its master again"
                    log.warning(text)
                    self._session.sparkContext.cancelAllJobs()
                    self._report(text)
                    return
        except Exception as error:  # noqa: BLE001  the JVM has ended, and with it what there was to watch
            log.debug("the watch over executors has ended: %s", error)

    def _counts(self) -> tuple[int, int]:
        """Return the numbers of executors and of active jobs."""
        context = self._session.sparkContext
        executors = int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is one of them
        return executors, len(context.statusTracker().getActiveJobsIds())
