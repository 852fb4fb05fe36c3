"""Priority of tasks: some let everything else on their machine go first."""

from __future__ import annotations

import os
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from umbel.spark.packets import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from umbel.spark.tasks import Task

VARIABLE = "PYTHON_WORKER_NICENESS"
"""Set in the environment of Python workers whose tasks yield."""
NICENESS = 10
"""How much lower their priority is: a tenth of the share of CPU time, where there is not enough for all."""

_WRAPPING = Lock()


def mapped(frame: DataFrame, task: Task, *, yields: bool) -> DataFrame:
    """Return what a task makes of a frame.

    Spark keeps a pool of Python workers for each environment, so those with a low priority run no other tasks. A process without
    privileges could not raise it again.

    Args:
        frame: the packets, or what a first stage gets.
        task: makes packets of them.
        yields: whether it runs at a low priority.
    """
    environment = frame.sparkSession.sparkContext.environment
    with _WRAPPING:  # of the context, which other threads use
        if yields:
            environment[VARIABLE] = str(NICENESS)
        try:
            return frame.mapInArrow(task, SCHEMA)
        finally:
            environment.pop(VARIABLE, None)


@cache
def take_priority() -> None:
    """Give this process the priority that its environment asks for, once."""
    if found := os.environ.get(VARIABLE):
        os.nice(int(found))
