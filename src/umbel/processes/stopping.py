"""A request to stop that a signal handler makes."""

from __future__ import annotations

import signal
from contextlib import suppress
from queue import Empty, SimpleQueue

STOPPED_WITHIN = 25.0
"""Seconds a process has to stop in order before it ends its children and itself; its supervisor waits somewhat longer."""
ONE_STOP = 1.0
"""Seconds in which signals are the same one: a terminal and its shell send it both, and a parent's end is noticed in two ways."""


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that request a stop: SIGHUP unless it is ignored, as under nohup."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *(() if is_ignored else (signal.SIGHUP,)))


class StopRequest:
    """A flag that a signal handler may set while the main thread waits for it.

    Not a `threading.Event`: its `wait` holds a lock for some instants, and a handler that runs in one of them, in the same
    thread, waits in `set` for that lock for ever. `SimpleQueue.put` may be called from a handler.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Request the stop, and wake those that wait."""
        self._is_set = True
        self._wakes.put(None)

    def is_set(self) -> bool:
        """Return whether the stop was requested."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait until the stop is requested, at most so many seconds; return whether it was."""
        if not self._is_set:
            with suppress(Empty):
                self._wakes.get(timeout=seconds)
                self._wakes.put(None)  # for other threads that wait
        return self._is_set
