"""Reading of small files that are beside each other in objects, many with one request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

BLOCK = 1 << 20
"""Bytes that are read at once; larger parts are read alone."""
BLOCKS = 16
"""Objects of which the last block is retained."""


@dataclass(slots=True)
class BlocksAhead:
    """The last blocks that were read of objects. Safe to use from many threads.

    It serves readers that go through each object once, from its start.
    """

    _found: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def range(self, name: str, start: int, size: int, read: Callable[[int, int], bytes]) -> bytes:
        """Return a range of an object, from a block if one has it.

        Args:
            name: of the object.
            start: of the range.
            size: in bytes.
            read: reads a range of the object, or fewer bytes where it ends.
        """
        if size >= BLOCK:
            return read(start, size)
        with self._lock:
            begin, data = self._found.get(name, (0, b""))
        if not begin <= start <= start + size <= begin + len(data):
            begin, data = start, read(start, BLOCK)
            with self._lock:
                self._found.pop(name, None)
                self._found[name] = begin, data
                if len(self._found) > BLOCKS:
                    del self._found[next(iter(self._found))]
        return data[start - begin : start - begin + size]
