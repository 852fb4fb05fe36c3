"""Memory that the allocators of a process hold without using it."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable


def release_unused_memory() -> None:
    """Return unused memory to the operating system.

    After a large batch that takes some hundredths of a second, and frees a tenth of what the process has.
    """
    pa.default_memory_pool().release_unused()
    _trim()(0)


@cache
def _trim() -> Callable[[int], Any]:
    """Return glibc's `malloc_trim`; a call without effect where the C library is another one."""
    found: Callable[[int], Any] = getattr(ctypes.CDLL(None), "malloc_trim", bool)
    return found
