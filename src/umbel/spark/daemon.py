"""The process that forks Spark's Python workers: pyspark's own, with umbel's modules loaded.

Spark starts it by `spark.python.daemon.module`. A worker need not load them, which takes a second, and shares their memory.
pyspark collects garbage after each task: frozen objects, of which there are more than 100,000, need not be traversed.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

WORKER = "pyspark.worker"
"""The module of the workers that run tasks; others need nothing of umbel."""
MODULES = (
    "pandas",
    "umbel.graph.stages",
    "umbel.runtime.deployment",
    "umbel.runtime.guard",
    "umbel.runtime.intake",
    "umbel.runtime.postponing",
    "umbel.spark.backfill_step",
    "umbel.spark.packets",
    "umbel.spark.tasks",
)
"""What tasks need. None of them may start threads, or compute with Polars: its threads do not survive a fork."""


def main() -> None:
    """Load the modules and fork workers until Spark ends."""
    if sys.argv[1:2] == [WORKER]:
        for name in MODULES:
            import_module(name)
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
