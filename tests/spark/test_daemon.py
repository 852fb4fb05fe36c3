"""Spark's Python workers are forked with what tasks need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from umbel.spark.daemon import MODULES

OTHERS = {"jemalloc_bg_thd", "polars-ooc-clea"}
"""The threads that importing Arrow and Polars starts: those of allocators, which live on in a fork, and one that is idle."""
THREADS = f"""
import os
from importlib import import_module
from pathlib import Path
for name in {MODULES!r}:
    import_module(name)
print(*{{each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm")}})
"""


def _loaded(arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import gc
    import sys

    import polars as pl

    missing = [name for name in MODULES if name not in sys.modules]
    for each in arrived:
        total = pl.DataFrame({"number": each["id"].to_pylist()}).lazy().select(pl.col("number").sum()).collect().item()
        yield pa.RecordBatch.from_pydict(
            {"total": [total], "frozen": [gc.get_freeze_count()], "missing": [str(missing)]}
        )


def test_workers_have_the_modules_of_tasks_and_need_not_traverse_them(spark: Any) -> None:
    numbers = spark.range(200, numPartitions=2)
    found = numbers.mapInArrow(_loaded, "total long, frozen long, missing string").collect()
    assert sum(each.total for each in found) == sum(range(200))
    assert all(each.frozen > 50_000 for each in found), found
    assert {each.missing for each in found} == {"[]"}


def test_no_module_starts_threads_that_a_fork_would_lack() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    found = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True, env=environment)
    (main,) = set(found.stdout.split()) - OTHERS
    assert main.startswith("python")
