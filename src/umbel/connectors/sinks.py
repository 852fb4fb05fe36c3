"""The write interface of a sink: changes and their position, written in one transaction.

A sink's position is kept where its changes go, in the same transaction. So after a crash the destination itself says what it has,
and nothing is written twice or left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

PlainRow = Mapping[str, Any]
"""A row as JSON values by column."""


@dataclass(frozen=True, slots=True, order=True)
class SinkPosition:
    """The changes that a destination has.

    Args:
        batch: all changes of the batches up to this one, -2 for none; a backfill is batch -1.
        rows: and so many of the next batch.
    """

    batch: int = -2
    rows: int = 0


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of one row.

    Args:
        key: the values of the key columns, None for a dataset without keys.
        before: the row before, None for an insertion.
        after: the row after, None for a deletion.
        at: its event time, in µs since the epoch.
    """

    key: PlainRow | None
    before: PlainRow | None
    after: PlainRow | None
    at: int

    @property
    def op(self) -> str:
        """Its kind in Debezium's words: c(reate), u(pdate) or d(elete)."""
        return "c" if self.before is None else "d" if self.after is None else "u"


class SinkWriter(Protocol):
    """Writes the changes of one dataset to one destination.

    A writer that failed is closed, and another one is made.
    """

    def position(self) -> SinkPosition:
        """Return the position of the destination, after refusing further writes of earlier writers.

        Raises:
            Transient: the destination does not answer.
        """

    def write(self, changes: Sequence[RowChange], position: SinkPosition) -> None:
        """Write changes and the position behind them in one transaction.

        Raises:
            Transient: it failed; whether it took effect is what the next writer's `position` says.
        """

    def close(self) -> None:
        """Release connections."""
