"""The limit of open files of this process, and of the connections among them."""

from __future__ import annotations

import resource
import time
from asyncio import AbstractEventLoop
from contextlib import suppress
from logging import Logger
from typing import Any

MOST = 1 << 16
"""Open files to which the limit is raised."""
SAID_EVERY = 60.0
"""Seconds between two messages about refused connections."""
_NOT_ACCEPTED = "socket.accept() out of system resource"
"""The message of asyncio."""


def raise_limit() -> None:
    """Raise the limit of open files to `MOST`, or as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    for limit in (MOST if hard == resource.RLIM_INFINITY else min(hard, MOST), 10_240):  # the latter is that of macOS
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
            return


def most_connections() -> int:
    """Return the number of connections that a process may have open.

    The other half is for its files: a collector may have several of each of a hundred streams.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (MOST if soft == resource.RLIM_INFINITY else soft) // 2


class ConnectionLimit:
    """A limit of open connections.

    Without one, connections take all open files, and no file can be opened then.

    Args:
        log: takes a message, at most one a minute, when there are more.
    """

    def __init__(self, log: Logger) -> None:
        self._most, self._log = most_connections(), log
        self._said_at = -SAID_EVERY

    def admits(self, others: int) -> bool:
        """Return whether a connection may be open beside others."""
        if others < self._most:
            return True
        self._say()
        return False

    def handle(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of an event loop, without tracebacks of unaccepted connections.

        asyncio tries a connection that is one too many some thousand times a second.
        """
        if context.get("message") == _NOT_ACCEPTED:
            self._say()
        else:
            loop.default_exception_handler(context)

    def _say(self) -> None:
        if time.monotonic() >= self._said_at + SAID_EVERY:
            self._said_at = time.monotonic()
            self._log.error("connections are refused: at most %d may be open; ulimit -n allows more", self._most)
