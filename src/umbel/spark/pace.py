"""The pace of a backfill beside the live job."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

LIVE_FOR = 5.0
"""Seconds after a small batch with rows for which more of them are expected."""
AT_ONCE_FOR = 2.0
"""Seconds within which steps follow each other before a batch without rows: a batch for each step costs a tenth of a second."""


class Pace:
    """Decides about the next step of a backfill.

    Between batches whose rows are to be fresh, steps are small, and take at most half of the time.

    Args:
        small: bytes of input up to which the rows of a batch are to be fresh; larger ones catch up.
        clock: monotonic seconds.
    """

    def __init__(self, small: int, clock: Callable[[], float] = monotonic) -> None:
        self._small, self._clock = small, clock
        self._live_until, self._resting_until, self._ends_at = float("-inf"), float("-inf"), float("-inf")
        self.is_live = False
        """True if rows arrive that are to be fresh, with the next batch or since a short while."""

    def before(self, size: int) -> None:
        """Take the next batch into account.

        Args:
            size: the bytes of its input.
        """
        now = self._clock()
        if 0 < size <= self._small:
            self._live_until = now + LIVE_FOR
        self.is_live = size <= self._small and now < self._live_until
        self._ends_at = float("-inf") if size else now + AT_ONCE_FOR

    @property
    def may_step(self) -> bool:
        """True if a step may run before the next batch."""
        return not self.is_live or self._clock() >= self._resting_until

    @property
    def may_go_on(self) -> bool:
        """True if another step may follow before the next batch, which has no rows."""
        return not self.is_live and self._clock() < self._ends_at

    def stepped(self, seconds: float) -> None:
        """Take a step into account that has just ended.

        Args:
            seconds: how long it took.
        """
        self._resting_until = self._clock() + seconds
