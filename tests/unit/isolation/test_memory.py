"""The memory that a call may gain is its own, whatever the libraries of the process reserve."""

from __future__ import annotations

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
