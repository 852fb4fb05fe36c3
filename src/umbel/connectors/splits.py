"""The read interface of a source: plan splits, then open them.

Splits are planned on one process and opened on others.

The planner reads only names, sizes and offsets. A split has, as plain data, all that a worker needs to read its
part; opened twice it gives the same rows with the same numbers. Rows are returned raw; they are validated in
`umbel.types.validate`.
Broken input becomes rejected records among the rows, never an error that would stop the stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from umbel.connectors.lag import SourceLag
from umbel.formats.raw_batch import RawBatch
from umbel.types.dtype import DType

Split: TypeAlias = Mapping[str, Any]
"""A part of a source: plain data, opaque to all but its source."""

Found: TypeAlias = tuple[Split, int]
"""A split, and its approximate size in bytes."""

Position: TypeAlias = Any
"""The position up to which a source has been planned: plain data, opaque to all but the source; None is the beginning."""


Landmark: TypeAlias = tuple[int, str]
"""The number of a row, and a text from which its source tells the position of that row and of later ones."""


@dataclass(frozen=True, slots=True)
class SourceSize:
    """The unread part of a source, as far as names, sizes and offsets tell.

    Args:
        rows: its rows, None for unknown.
        bytes: its bytes, None for unknown.
    """

    rows: int | None = None
    bytes: int | None = None


class SplitSource(Protocol):
    """The read interface of one kind of connector.

    Instances are small and can be pickled.
    """

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return the new splits, and the position after them.

        Args:
            position: the end of the previous plan.
            budget: approximate limit in bytes; at least one record is planned if there is one.
        """

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a split in order, numbered by position in the source.

        Args:
            split: as planned.
            requested: the requested columns and their types.
            exact: True if only these columns are returned.
        """

    def open_all(self, splits: Sequence[Split], requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of several splits, in order; they may be fetched at once."""
        for split in splits:
            yield from self.open(split, requested, exact=exact)

    opens_at_once: ClassVar[bool] = False
    """True if several splits may be read at once in threads of a process: `open` shares nothing that changes."""

    paces_itself: ClassVar[bool] = False
    """True if it polls its server once per `every` by itself, so that it may be asked for splits at any time."""

    @property
    def failure_domain(self) -> object:
        """The system it reads from, equal for all sources of it.

        If it does not answer while a batch is read that has stored nothing yet, they are planned again, from the position before.
        None for a source whose splits, once planned, must be read.
        """
        return None

    @property
    def loads_unordered(self) -> bool:
        """True if rows that exist already are read in no order of event time.

        Until they are read, none is late.
        """
        return False

    @property
    def is_loading(self) -> bool:
        """True while the rows that exist already are read for the first time."""
        return False

    @property
    def is_listing(self) -> bool:
        """True while the source looks for new data in several steps, one for each `plan`."""
        return False

    def partition_of(self, split: Split) -> str | None:
        """Return the partition that a split is of, None if the source has none.

        Partitions are read side by side, and only the rows of each are in an order.
        """
        del split
        return None

    def landmark_of(self, split: Split) -> Landmark | None:
        """Return the landmark of the rows of a split.

        None if numbers tell positions alone. One with the text of the landmark before it is not stored.
        """
        del split
        return None

    def location_of(self, number: int, landmark: Landmark | None) -> str:
        """Return the position of a row in the source, human-readable.

        Args:
            number: of the row.
            landmark: the last one at or before the row; None if there is none.
        """
        del landmark
        return f"row {number}"

    def unread_partitions(self, position: Position) -> Collection[str]:
        """Return the partitions with rows beyond a position, as the last `plan` found them."""
        del position
        return ()

    def read_ahead(self) -> None:
        """Begin to read, beside other sources; called before any of them is planned."""
        return

    def tend(self) -> None:
        """Wait a little for rows read ahead.

        Called before each `plan`, by the process that plans batches alone.
        """
        return

    def retire(self) -> None:
        """Release what the server retains for this source, which no commit has any more.

        It is called again later if it fails.
        """
        return

    def measure(self, position: Position) -> SourceSize:
        """Return the size of the unread part behind a position, by metadata alone.

        Raises:
            Transient: the source does not answer.
        """
        del position
        return SourceSize()

    def examine(self) -> None:
        """Check at commit that the source can be read.

        Raises:
            UmbelError: it cannot; the message has a remedy.
        """
        return

    def lag(self, position: Position) -> SourceLag:
        """Return the lag beyond a position, as the last `plan` found it.

        It asks no server: it is called with each batch.
        """
        del position
        return SourceLag()

    @property
    def trouble(self) -> str:
        """The reason why a polled source cannot be read now; empty if it can."""
        return ""

    def check(self, position: Position) -> None:
        """Check that reading can resume at a position, as far as the source can tell.

        Raises:
            Damaged: data that was planned up to there is gone.
        """
        del position  # a source that cannot tell resumes anywhere
