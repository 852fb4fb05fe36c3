"""Silent systems: of all sources of one, only one is requested at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from umbel.errors import Transient

LONG = 1.0
"""Seconds after which an error counts as silence. An answer comes sooner, whatever it says."""
REST = 5.0
"""Seconds for which the other sources of a silent system are not requested."""


class SilentSystems:
    """The systems that sources are read from and that keep requests waiting.

    Each request to one takes seconds, for which all other sources wait.
    """

    def __init__(self) -> None:
        self._errors = dict[str, tuple[float, Transient]]()

    @contextmanager
    def noted(self, system: object) -> Iterator[None]:
        """Request something of a system inside the block.

        Args:
            system: equal for all sources of it; None for one that is not shared.

        Raises:
            Transient: it has kept another request waiting just now.
        """
        key, begun = repr(system), time.monotonic()
        until, error = self._errors.get(key, (0.0, None))
        if error is not None and begun < until:
            raise Transient(error.message, hint=error.hint)
        try:
            yield
        except Transient as silent:
            if system is not None and time.monotonic() - begun > LONG:
                self._errors[key] = time.monotonic() + REST, silent
            raise
        self._errors.pop(key, None)
