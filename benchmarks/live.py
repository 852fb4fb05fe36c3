"""The live job in Spark, until a benchmark has seen enough of its batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

Counts = Mapping[tuple[str, str], int]
"""What a batch counted, by dataset and name."""


def counted(counts: Counts, name: str) -> int:
    """Return what a batch counted under a name, of all datasets."""
    return sum(count for (_, each), count in counts.items() if each == name)


def run_until(deployment: Deployment, slots: int, is_enough: Callable[[Counts], bool]) -> float:
    """Run the live job until a batch is the last one; return the seconds it took without Spark's start.

    Args:
        deployment: the deployment.
        slots: of Spark.
        is_enough: called after each batch with what it counted.

    Raises:
        SystemExit: the job has ended before.
    """
    from umbel.spark.job import LiveJob
    from umbel.spark.session import Settings, running

    done = threading.Event()

    def finished(_: int, counts: Counts) -> None:
        if is_enough(counts):
            done.set()

    with running(Settings(deployment.directory, slots=slots)) as session:
        begun = time.monotonic()
        query = LiveJob(deployment, session, on_batch=finished).start()
        while not done.wait(0.05) and query.isActive:
            pass
        seconds = time.monotonic() - begun
        if not done.is_set():
            raise SystemExit(str(query.exception()))
    return seconds
