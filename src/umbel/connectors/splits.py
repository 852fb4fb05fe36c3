"""The reading side of a source: one place plans splits, other places open them.

The planner looks only at names, sizes and offsets. A split says, as plain data, all that a worker needs to read its
part; opened twice it gives the same rows with the same numbers. Rows come out raw: judging them is
`umbel.types.validate`.
Broken input becomes rejects among the rows, never an error that would stop the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from umbel.connectors.rawbatch import RawBatch
from umbel.types.dtype import DType

Split: TypeAlias = Mapping[str, Any]
"""A part of a source: plain data that only its source understands."""

Found: TypeAlias = tuple[Split, int]
"""A split, and about how many bytes it has."""

Position: TypeAlias = Any
"""How far a source has been planned: plain data that only the source understands; None is the beginning."""


class SplitSource(Protocol):
    """The reading side of one kind of connector. Instances are small and can be pickled."""

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return what is new, and the position behind it.

        Args:
            position: where the plan before ended.
            budget: stop at about so many bytes; one record at least is planned if there is one.
        """

    def open(self, split: Split, wanted: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a split in order, numbered by their place in the source.

        Args:
            split: as planned.
            wanted: columns that are asked for, and their types.
            exact: whether no other columns are.
        """
