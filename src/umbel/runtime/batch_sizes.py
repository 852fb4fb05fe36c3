"""Sizes of batches: the rows that one makes have to fit into memory.

Overlapping windows and exploded lists make many rows of one: a row is in 288 windows of `Hopping("1d", "5m")`, each with a result
of its own. How many they are is known once such rows were processed. So a backlog is begun with little where operators multiply
rows; each batch may be some times as large as the one before, and one that made many is followed by one that is as much smaller.
How many windows a row is in, is known before; how long lists are is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from umbel.operators.aggregate import EmittedAggregation
from umbel.operators.explode import Explode
from umbel.operators.operator import Operator
from umbel.processes.memory import memory
from umbel.types.windows import Hopping

GROWTH = 8
"""How many times as large as the one before a batch may be."""
MOST_MADE = 4_000_000
"""About how many rows one operator makes in a batch at most: with what is computed from them they take some GiB."""
MADE_BYTES = 1500
"""About how many bytes of memory a row takes that an operator makes, with what is computed from it."""
EXPLODED = 64
"""How many elements lists are taken to have before any was exploded."""
ROW_BYTES = 64
"""The bytes that a row of input is taken to have: about as many as a short one has."""


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """The sizes that batches may have, in bytes or rows of input.

    Args:
        first: of a batch after one that read little, or after none.
        least: of any batch.
        full: of a batch whose rows make few.
        made: about how many rows one operator makes in a batch at most.
    """

    first: int
    least: int
    full: int
    made: int

    @classmethod
    def of(cls, operators: Iterable[Operator], least: int, full: int, unit: int = 1) -> Self:
        """Return the sizes for some operators, and the memory that there is now.

        Args:
            operators: those of the graph.
            least: the least size.
            full: the size where no operator makes many rows of one.
            unit: the size of a row of input.
        """
        copies = max(map(rows_of_one, operators), default=1)
        if copies == 1:
            return cls(full, least, full, MOST_MADE)
        made = min(MOST_MADE, memory().available // MADE_BYTES)
        return cls(max(least, unit * made // copies), least, full, made)

    @property
    def begin(self) -> int:
        """The limit of the first batch."""
        return min(self.first, self.full)

    def after(self, limit: int, size: int, made: int) -> int:
        """Return the limit of the next batch.

        Args:
            limit: of the batch before.
            size: of the batch before.
            made: the rows that it made, of the operator that made most.
        """
        if not size:
            return limit
        largest = min(self.full, GROWTH * limit, max(self.first, GROWTH * size))
        if made > self.made // GROWTH:
            largest = min(largest, size * self.made // made)
        return max(min(self.least, self.full), largest)


def rows_of_one(operator: Operator) -> int:
    """Return about how many rows an operator makes of one."""
    if isinstance(operator, EmittedAggregation):
        return max((_overlapping(each) for each in operator.windows), default=1)
    return EXPLODED if isinstance(operator, Explode) else 1


def _overlapping(window: Any) -> int:
    """Return how many windows an instant is in."""
    if not isinstance(window, Hopping) or window.duration_us is None:
        return 1
    return -(-window.duration_us // window.stride_us)


def most(made: Mapping[Any, int]) -> int:
    """Return the rows of the operator that made most."""
    return max(made.values(), default=0)
