"""Pauses of the garbage collector while rows are made of objects."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class _Pauses:
    """The pauses in progress, and whether the collector was enabled before them."""

    count: int = 0
    was_enabled: bool = True


_PAUSES, _LOCK = _Pauses(), threading.Lock()


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the collection of cycles for a `with` block.

    Parsers make many objects and no cycles: to traverse them again and again takes longer than to make them. Pauses of several
    threads may overlap: the last one to end is the end of all.
    """
    with _LOCK:  # between a look and a call, another thread may end the last pause: the collector would stay disabled
        if not _PAUSES.count:
            _PAUSES.was_enabled = gc.isenabled()
            gc.disable()
        _PAUSES.count += 1
    try:
        yield
    finally:
        with _LOCK:
            _PAUSES.count -= 1
            if not _PAUSES.count and _PAUSES.was_enabled:
                gc.enable()
