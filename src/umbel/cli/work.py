"""Process the data: the Spark driver of the live job."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from umbel.cli.options import DIRECTORY, Catalog, Directory, Shards, Store, Workers, deployment
from umbel.runtime.deployment import SHARDS
from umbel.runtime.supervise import die_with_parent


def command(
    directory: Directory = DIRECTORY,
    workers: Workers = 2,
    catalog: Catalog = None,
    store: Store = None,
    shards: Shards = SHARDS,
) -> None:
    """Process the data of what is committed, until stopped."""
    from umbel.spark.job import LiveJob
    from umbel.spark.session import Settings, running

    die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    place = deployment(directory, catalog, store, shards)
    stopping = threading.Event()

    def stop(_: int, __: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    status = Status(place.directory / "work.json")
    with running(Settings(place.directory, slots=workers)) as session:
        query = LiveJob(place, session, on_batch=status.batch).start()
        status.write("running")
        while not stopping.is_set() and query.isActive:
            stopping.wait(0.2)
        failure = query.exception()
    if failure is not None and not stopping.is_set():
        place.catalog.tell("work", "error", str(failure)[:4000])
        logging.getLogger("umbel.work").error("%s", str(failure)[:4000])
        sys.exit(1)
    status.write("stopped")


class Status:
    """A small file that says how the worker does.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._written = path, 0.0

    def batch(self, number: int, counts: Mapping[tuple[str, str], int]) -> None:
        """Note a finished batch."""
        if time.monotonic() - self._written > 0.5:
            self.write("running", number)

    def write(self, state: str, batch: int | None = None) -> None:
        """Write the file."""
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps({"state": state, "batch": batch, "at": time.time()}))
        fresh.rename(self._path)
        self._written = time.monotonic()
