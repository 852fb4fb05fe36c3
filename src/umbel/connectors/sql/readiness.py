"""Waiting for sockets and pipes.

`select.select` refuses descriptors from 1,024 on, which a process with many open files has.
"""

from __future__ import annotations

import selectors
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class HasDescriptor(Protocol):
    """A socket, a pipe or another object with a descriptor."""

    def fileno(self) -> int:
        """Return the descriptor."""


Stream = TypeVar("Stream", bound=int | HasDescriptor)


def wait_readable(streams: Iterable[Stream], patience: float) -> list[Stream]:
    """Return the streams that have something to read, none if that takes too long.

    Args:
        streams: sockets or pipes, or their descriptors.
        patience: seconds to wait at most.
    """
    return _wait(streams, patience, selectors.EVENT_READ)


def wait_writable(streams: Iterable[Stream], patience: float) -> list[Stream]:
    """Return the streams that can be written to, none if that takes too long.

    Args:
        streams: sockets or pipes, or their descriptors.
        patience: seconds to wait at most.
    """
    return _wait(streams, patience, selectors.EVENT_WRITE)


def _wait(streams: Iterable[Stream], patience: float, event: int) -> list[Stream]:
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, event, stream)
        return [key.data for key, _ in selector.select(patience)]
