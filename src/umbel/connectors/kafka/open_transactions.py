"""Open transactions of the partitions of a Kafka topic.

Nothing behind the first record of one can be read before it ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

LONG = 900.0
"""Seconds from which on an open transaction is told: the most that a broker allows by default (`transaction.max.timeout.ms`)."""


@dataclass(slots=True)
class OpenTransactions:
    """The partitions with records of open transactions, as of the last plan."""

    _since: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Where each begins, and when it was first seen, on the monotonic clock."""

    def note(self, ends: Mapping[int, tuple[int, int]], written: Mapping[int, int]) -> None:
        """Note which partitions have an open transaction.

        Args:
            ends: the first offset of each partition, and that behind the last record that can be read.
            written: the offset behind the last record of each.
        """
        now, before = time.monotonic(), self._since
        begins = {part: end for part, (_, end) in ends.items() if written[part] > end}
        is_known = {part: part in before and before[part][0] == at for part, at in begins.items()}
        self._since = {part: before[part] if is_known[part] else (at, now) for part, at in begins.items()}

    def __contains__(self, partition: int) -> bool:
        return partition in self._since

    @property
    def trouble(self) -> str:
        """The transactions that have been open for long; empty if none."""
        now = time.monotonic()
        found = [
            f"partition {part} from offset {at} on"
            for part, (at, since) in sorted(self._since.items())
            if now - since >= LONG
        ]
        if not found:
            return ""
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        return (
            f"a transaction has been open for {LONG / 60:.0f} minutes or more, and what comes after it waits: "
            f"{', '.join(found[:3])}{more}; end its producer, or abort it (kafka-transactions.sh find-hanging, abort)"
        )
