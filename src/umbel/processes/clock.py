"""Steps of the machine's clock."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP = 1.0
"""Seconds by which the clock is set back at least; smaller steps are adjustments."""
PAUSED = 0.1
"""Seconds between two readings after which the process was paused between them."""


class ClockWatch:
    """Notices that the machine's clock is set back.

    Args:
        wall: seconds since the epoch.
        steady: seconds that never go back.
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._ahead = float("-inf")
        self.was_set_back()

    def was_set_back(self) -> bool:
        """Return whether the clock was set back since the last call."""
        before, wall, after = self._steady(), self._wall(), self._steady()
        if after - before > PAUSED:
            return False
        last, self._ahead = self._ahead, wall - before
        return self._ahead < last - STEP
