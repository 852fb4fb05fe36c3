"""Process trees: ending with the parent, adopting orphans, killing all descendants."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress

import psutil

PARENT = "UMBEL_PARENT"
"""The environment variable with the process id of the supervisor."""
LAST_WAIT = 20.0
"""Seconds a process has to stop after its parent ended, before it kills itself and its whole group."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with(parent: int, by: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """Return a function that binds a new process's life to its parent's.

    The new process must call it, and then gets the signal `by` when its parent ends, however the parent ends. To Linux the parent
    is
    the thread that starts the process: it must be one that lives as long as its process.
    """
    prctl = _prctl()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, by)
        if os.getppid() != parent:
            os.kill(os.getpid(), by)

    return bind


def die_with_parent() -> None:
    """Stop this process when its supervisor ends; kill it if stopping takes too long.

    A thread polls the parent's process id. Without a supervisor this does nothing.
    """
    declared = os.environ.get(PARENT, "")
    if declared.isdigit() and int(declared) != os.getpid():
        threading.Thread(target=_watch, args=(int(declared),), name="parent", daemon=True).start()


def end_with_parent(parent: int) -> None:
    """Kill this process when its parent ends, or has ended already.

    For processes that have nothing to finish.
    """
    _prctl()(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the parent of descendants that lose theirs."""
    _prctl()(_PR_SET_CHILD_SUBREAPER, 1)


def end_family(head: int) -> None:
    """Kill an unreaped process, its descendants, and the rest of its group."""
    family: list[psutil.Process] = []
    with suppress(psutil.Error):
        process = psutil.Process(head)
        family = [process, *process.children(recursive=True)]
    end_group(head)
    for each in family:
        with suppress(psutil.Error):
            each.kill()


def end_children() -> None:
    """Kill every descendant of this process."""
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            each.kill()


def end_group(head: int) -> None:
    """Kill the remaining processes of a group; its head may be gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(head, signal.SIGKILL)


def end_strays(known: Collection[int]) -> None:
    """Kill and reap every child of this process except the known ones.

    The others are orphans of dead children.
    """
    for each in psutil.Process().children():
        if each.pid not in known:
            end_family(each.pid)
            with suppress(ChildProcessError):
                os.waitpid(each.pid, 0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_WAIT)
    end_family(os.getpid())


def _prctl() -> Callable[..., int]:
    """Return Linux's `prctl`; elsewhere a function that does nothing."""
    if not sys.platform.startswith("linux"):
        return lambda *_: 0
    function: Callable[..., int] = ctypes.CDLL(None).prctl
    return function
