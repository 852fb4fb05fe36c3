"""Calls that run at once in threads of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

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
    with beside(call, each) as results:
        return results()


@contextmanager
def beside(call: Callable[[T], R], items: Iterable[T]) -> Iterator[Callable[[], list[R]]]:
    """Run a call for each item while the body runs.

    The body gets a function that waits for them and returns the results, in order. All have ended when it is left. Where only one
    may run at once, they run when the function is called.
    """
    each = list(items)
    if not each or _SETTINGS.threads < 2:
        yield lambda: [copy_context().run(call, item) for item in each]
        return
    running = [_pool(os.getpid(), _SETTINGS.threads).submit(copy_context().run, call, item) for item in each]
    try:
        yield lambda: [one.result() for one in running]
    finally:
        wait(running)


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a fork of it has its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="batch")
