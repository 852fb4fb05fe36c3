"""The threads of a server process, apart by what they wait for.

What waits for the catalog, or reads history for a minute, must not keep queries waiting that need neither. Commits, secrets and
figures have the threads of asyncio, which are none of these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

ANSWERING, READING = 16, 4


class Crew:
    """Threads for one kind of work.

    Args:
        name: of the work.
        size: how much of it is done at a time; what is more waits.
    """

    def __init__(self, name: str, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=name)

    async def do(self, work: Callable[..., T], *args: object) -> T:
        """Return what a function returns, called in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Threads:
    """The crews of a server process."""

    def __init__(self) -> None:
        self.answering = Crew("answer", ANSWERING)
        """Queries with user code, which may wait for whatever it likes."""
        self.reading = Crew("read", READING)
        """Questions about history."""
        self.following = Crew("follow", 1)
        """Whoever wants to know what is in force; more than one at a time would learn nothing more."""

    def close(self) -> None:
        """Begin nothing more."""
        for each in (self.answering, self.reading, self.following):
            each.close()
