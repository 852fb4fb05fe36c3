"""One read of the partitions of a source by pages, of which some may fail."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from umbel.connectors.polling import Poller
from umbel.errors import UmbelError


@dataclass
class PageReading:
    """One read of some partitions.

    Args:
        poller: the thread.
        state: as of the read before.
        offsets: behind the pages of each partition; they advance.
        postponed: the partitions that failed before, and are to be read later.
        failing: the partitions whose last attempt failed.
        errors: of this read, by partition.
        saved_at: the time at which the offsets were saved, monotonic.
    """

    poller: Poller
    state: Mapping[str, Any]
    offsets: dict[str, Any]
    postponed: Sequence[str] = ()
    failing: set[str] = field(default_factory=set)
    errors: dict[str, UmbelError] = field(default_factory=dict)
    saved_at: float = field(default_factory=time.monotonic)

    @property
    def failed(self) -> list[str]:
        """The partitions that are to be read again soon."""
        return [*self.postponed, *self.errors]

    def fail(self, partition: str, error: UmbelError) -> None:
        """Note that a partition could not be read."""
        self.errors[partition] = error
        self.failing.add(partition)

    def succeed(self, partition: str) -> None:
        """Note that a partition could be read; the trouble is over when all can."""
        self.failing.discard(partition)
        if not self.failing:
            self.poller.progressed(self.poller.lag)
