"""The thread pools of a server process, one per kind of blocking work.

Work that waits for the catalog, or reads history for a minute, must not delay queries that need neither. Commits, secrets and
metrics run in asyncio's default thread pool, which is none of these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

ANSWERING, READING, PARSING = 80, 4, 2


class ThreadPool:
    """A thread pool for one kind of work.

    Args:
        name: of the work.
        size: the number of threads; further work waits.
    """

    def __init__(self, name: str, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=name)

    async def do(self, work: Callable[..., T], *args: object) -> T:
        """Call a function in one of the threads and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def close(self) -> None:
        """Accept no more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Threads:
    """The thread pools of a server process."""

    def __init__(self) -> None:
        self.answering = ThreadPool("answer", ANSWERING)
        """Queries with user code, which may wait for whatever it likes."""
        self.reading = ThreadPool("read", READING)
        """Questions about history."""
        self.parsing = ThreadPool("parse", PARSING)
        """Large bodies. More threads would not parse them faster."""
        self.following = ThreadPool("follow", 1)
        """For reloading the definitions in force; concurrent reloads would find nothing more."""

    def close(self) -> None:
        """Accept no more work."""
        for each in (self.answering, self.reading, self.parsing, self.following):
            each.close()
