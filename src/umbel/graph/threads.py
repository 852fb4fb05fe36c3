"""Calls that run at once in threads of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Generic, Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")


AVAILABLE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class _Settings:
    threads: int = AVAILABLE


_SETTINGS = _Settings()


def use(threads: int) -> None:
    """Run at most so many calls at once in this process from now on.

    There are no more than there are cores.
    """
    _SETTINGS.threads = max(1, min(threads, AVAILABLE))


def in_threads(call: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return the results of a call for each item, in order.

    As many run at once as there are cores, or as `use` allows, each in a copy of the caller's context, with its guard. All have
    ended when this returns, or when it raises what the first failing one raised. Calls must not use this themselves.
    """
    each = list(items)
    if len(each) < 2:
        return [copy_context().run(call, item) for item in each]
    with Calls[R]() as calls:
        calls.start(call, each)
        return calls.results()


class Calls(Generic[R]):
    """Calls that run in threads while the body of the `with` statement runs.

    All have ended when it is left. Where only one may run at once, they run when their results are needed.
    """

    def __init__(self) -> None:
        self._results = list[Callable[[], R]]()
        self._running = list[Future[R]]()

    def start(self, call: Callable[[T], R], items: Iterable[T]) -> None:
        """Run a call for each item, in a copy of the caller's context."""
        for item in items:
            if _SETTINGS.threads < 2:
                self._results.append(partial(copy_context().run, call, item))
            else:
                one = _pool(os.getpid(), _SETTINGS.threads).submit(copy_context().run, call, item)
                self._running.append(one)
                self._results.append(one.result)

    def results(self) -> list[R]:
        """Wait for all calls; return their results, in order.

        Raises what the first failing one raised.
        """
        return [each() for each in self._results]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        wait(self._running)


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a fork of it has its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="batch")
