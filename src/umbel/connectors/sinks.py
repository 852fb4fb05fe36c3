"""The write interface of a sink: changes and their position, written in one transaction.

A sink's position is kept where its changes go, in the same transaction. So after a crash the destination itself says what it has,
and nothing is written twice or left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from umbel.types.schema import Schema

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


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The part of a sink's definition that its writer needs.

    Args:
        id: of the sink; unique, and the same after a restart.
        dataset: the name of the dataset.
        schema: of the dataset.
        renames: the sink's column name by the dataset's.
    """

    id: str
    dataset: str
    schema: Schema
    renames: Mapping[str, str]

    def column(self, name: str) -> str:
        """Return the sink's name of a column."""
        return self.renames.get(name, name)


class SinkWriter(Protocol):
    """Writes the changes of one dataset to one destination.

    A writer that failed is closed, and another one is made.
    """

    keeps_position: ClassVar[bool] = True
    """False if the destination has no place for the position.

    It is kept by the deployment then. Before changes are written it is noted which, so that after a crash the very same are
    written again, under the same position.
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
