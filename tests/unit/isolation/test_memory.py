"""The memory that a call may gain is its own, whatever the libraries of the process reserve."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_ALLOCATING = """
import sys
import polars, pyarrow
from umbel.isolation.memory import limited

with limited(1 << 30):
    pyarrow.allocate_buffer(64)
    polars.DataFrame({"a": [1, 2]}).with_columns(b=polars.col("a") + 1, c=polars.col("a") + 2)
    try:
        taken = bytearray(int(sys.argv[1]) << 20)
    except MemoryError:
        print("refused")
    else:
        print("allowed")
"""


@pytest.mark.parametrize(("mebibytes", "result"), [(900, "allowed"), (1100, "refused")])
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a call is limited on Linux alone")
def test_the_first_call_of_a_process_may_take_its_memory(mebibytes: int, result: str) -> None:
    """Arrow's allocator maps 1 GiB at its first allocation, and Polars starts its threads at its first expression."""
    command = [sys.executable, "-c", _ALLOCATING, str(mebibytes)]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout == f"{result}\n"


_STREAMING = """
import polars
from umbel.isolation.memory import limited

with limited(64 << 20):
    polars.collect_all([polars.LazyFrame({"a": [1]}).with_columns(b=polars.col("a") * n) for n in range(3)])
    print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a call is limited on Linux alone")
def test_threads_of_polars_take_nothing_of_the_memory_of_a_call() -> None:
    """It has one for each core twice, of which the second ones begin with the first query that it streams."""
    environment = {**os.environ, "POLARS_MAX_THREADS": "64"}
    command = [sys.executable, "-c", _STREAMING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "done\n"
