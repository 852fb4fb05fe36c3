"""Memory that the allocators of a process hold without using it."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RETAINING = {
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:1000,muzzy_decay_ms:0",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
}
"""Settings of the allocators of Polars and of glibc, which a process reads when it starts.

To return the memory of each column to the system and to get it again took a third of the CPU time of a large batch. A second is
enough for that: ten cost as much CPU time, and a twentieth more memory.
"""


def retaining(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with `RETAINING`; its own settings win."""
    return {**RETAINING, **environment}


def retain_freed_memory() -> None:
    """Start this program again in an environment that retains freed memory, unless it has one.

    A program that calls the command line with arguments of its own goes on as it is.
    """
    arguments = sys.argv[1:]
    is_ours = sys.orig_argv[len(sys.orig_argv) - len(arguments) :] == arguments
    if is_ours and not set(os.environ) >= set(RETAINING):
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, sys.orig_argv, retaining(os.environ))  # noqa: S606  no shell is meant


def release_unused_memory() -> None:
    """Return unused memory to the operating system.

    After a large batch that takes some hundredths of a second, and frees a tenth of what the process has.
    """
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    trim()


def trim() -> None:
    """Return unused memory of glibc to the operating system, also between blocks in use."""
    _trim()(0)


@cache
def _trim() -> Callable[[int], Any]:
    """Return glibc's `malloc_trim`; a call without effect where the C library is another one."""
    found: Callable[[int], Any] = getattr(ctypes.CDLL(None), "malloc_trim", bool)
    return found
