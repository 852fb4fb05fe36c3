"""Process the data: the Spark driver of the live job."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from umbel.cli.options import DIRECTORY, Catalog, Directory, Shards, Store, Workers, deployment

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment


def command(
    directory: Directory = DIRECTORY,
    workers: Workers = 2,
    catalog: Catalog = None,
    store: Store = None,
    shards: Shards = None,
) -> None:
    """Process the data of what is committed, until stopped: the worker alone, without a server.

    Example:
        umbel work -w 4
    """
    from umbel.runtime.kinship import die_with_parent
    from umbel.runtime.locks import alone
    from umbel.runtime.status import write_status

    die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    for name in ("py4j", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    stop = Stop()
    place = deployment(directory, catalog, store, shards)
    with alone(place.directory, "worker"):
        write_status(place.directory, "starting")
        failure = _work(place, workers, stop)
        write_status(place.directory, "failed" if failure else "stopped")
    if failure:
        place.catalog.tell("work", "error", failure[:4000])
        logging.getLogger("umbel.work").error("%s", failure)
        sys.exit(1)


def _work(place: Deployment, workers: int, stop: Stop) -> str:
    """Run the live job until it is stopped; return why it failed, if it did."""
    from umbel.spark.job import LiveJob
    from umbel.spark.session import Settings, running

    with running(Settings(place.directory, slots=workers)) as session:
        query = LiveJob(place, session, on_batch=_Told(place.directory)).start()
        stop.has_begun(place.directory)
        while not stop.is_asked.is_set() and query.isActive:
            stop.is_asked.wait(0.2)
        failure = query.exception()
        reason = "" if failure is None else str(failure)  # Spark is asked for the text: it must still be running
    return "" if stop.is_asked.is_set() else reason


class Stop:
    """Listens for SIGINT and SIGTERM: before the job has begun they end the process at once."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()
        self._has_begun = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._asked)

    def has_begun(self, directory: Path) -> None:
        """Note that the job runs, and say so."""
        from umbel.runtime.status import RUNNING, write_status

        self._has_begun = True
        write_status(directory, RUNNING)

    def _asked(self, _: int, __: FrameType | None) -> None:
        self.is_asked.set()
        if not self._has_begun:
            sys.exit(0)


class _Told:
    """Keeps the status file fresh while batches are finished."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._written = directory, 0.0

    def __call__(self, number: int, _: object) -> None:
        from umbel.runtime.status import RUNNING, write_status

        if time.monotonic() - self._written > 0.5:
            write_status(self._directory, RUNNING, number)
            self._written = time.monotonic()
