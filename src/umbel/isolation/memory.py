"""The memory limit of a call, as growth of the process's private memory."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
_DATA, _RESIDENT = 5, re.compile(rb"^Rss(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)


def resident(process: int) -> int:
    """Return the resident memory of a process in bytes; 0 if unknown.

    Pages of files that it maps do not count: the system takes them back when memory is short.
    """
    try:
        status = Path(f"/proc/{process}/status").read_bytes()
    except OSError:
        return 0
    return sum(map(int, _RESIDENT.findall(status))) << 10


@lru_cache(maxsize=1)
def _statm(process: int) -> int:
    """Return this process's open `statm` file; a fork of it opens its own."""
    return os.open(f"/proc/{process}/statm", os.O_RDONLY)


@lru_cache(maxsize=1)
def _start_allocators(process: int) -> None:
    """Let libraries of this process reserve their memory, before a call is limited.

    Arrow's allocator maps 1 GiB at its first allocation. Polars starts a thread per core at its first expression, and more at its
    first query that it streams. Where any is refused by a limit, Polars waits for itself for ever while it reports that.
    """
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].allocate_buffer(64)
    if "polars" in sys.modules:
        polars = sys.modules["polars"]
        rows = polars.DataFrame({"a": [1]}).with_columns(b=polars.col("a") + 1, c=polars.col("a") + 2)
        rows.lazy().select("a").collect(engine="streaming")


@contextmanager
def limited(allowed: int) -> Iterator[None]:
    """Raise MemoryError once the process has gained `allowed` bytes of private memory.

    Only on Linux: the limit excludes mapped files, of which the store maps large ones.
    """
    if not sys.platform.startswith("linux") or allowed <= 0:
        yield
        return
    import resource

    _start_allocators(os.getpid())
    data = int(os.pread(_statm(os.getpid()), 256, 0).split()[_DATA]) * PAGE
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bound = data + allowed if hard == resource.RLIM_INFINITY else min(data + allowed, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))
    try:
        yield
    finally:
        try:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        except ValueError:  # every later call would fail for want of memory
            os.write(2, b"a user function has lowered the limit of its process's memory for good: the process ends\n")
            os._exit(1)
