"""Memory that was freed is the system's again."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np, psutil
from umbel.processes.allocation import release_unused_memory
own = psutil.Process()
blocks = [np.ones(8000) for _ in range(4000)]
last = blocks.pop()
full = own.memory_info().rss
del blocks
before = own.memory_info().rss
release_unused_memory()
print(full - own.memory_info().rss, full - before, int(last.sum()))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_freed_memory_is_returned() -> None:
    program = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    released, already, used = map(int, program.stdout.split())
    assert used == 8000
    assert already < 64 << 20, "the case: the allocator kept it"
    assert released > 200 << 20
