"""Who belongs to whom among processes: dying with the parent, adopting what children leave behind, ending whole families."""

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
"""The environment variable that holds the process id of the supervisor."""
LAST_WAIT = 20.0
"""Seconds a process gets to stop after its parent has gone, before it ends itself and all of its group."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with(parent: int) -> Callable[[], None]:
    """Return what a new process must call to get SIGTERM when its parent ends, however that one ends."""
    prctl = _prctl()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return bind


def die_with_parent() -> None:
    """Stop this process when the supervisor that started it is gone; if stopping takes too long, end it.

    Where the system cannot tell of a parent's death, a thread looks for it. Without a supervisor this does nothing.
    """
    stated = os.environ.get(PARENT, "")
    if stated.isdigit() and int(stated) != os.getpid():
        threading.Thread(target=_watch, args=(int(stated),), name="parent", daemon=True).start()


def end_with_parent(parent: int) -> None:
    """Kill this process when its parent ends, or has ended already; for processes that have nothing to finish."""
    _prctl()(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of whatever descendants lose theirs."""
    _prctl()(_PR_SET_CHILD_SUBREAPER, 1)


def end_family(head: int) -> None:
    """Kill a process that has not been reaped, its descendants, and all that is left in its group."""
    family: list[psutil.Process] = []
    with suppress(psutil.Error):
        process = psutil.Process(head)
        family = [process, *process.children(recursive=True)]
    end_group(head)
    for each in family:
        with suppress(psutil.Error):
            each.kill()


def end_group(head: int) -> None:
    """Kill what is left in a process group; its head may be gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(head, signal.SIGKILL)


def end_strays(known: Collection[int]) -> None:
    """Kill and reap every child of this process but the known ones: what dead children have left behind."""
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
    """Return Linux' `prctl`; elsewhere something that does nothing."""
    if not sys.platform.startswith("linux"):
        return lambda *_: 0
    function: Callable[..., int] = ctypes.CDLL(None).prctl
    return function
