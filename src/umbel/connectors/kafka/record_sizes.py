"""Record sizes of a topic: how many records have a number of bytes.

A broker does not say how large a range is. So a few records are read at the begin of one, and at its end too if it is long: where
the later ones are larger, the range is halved until they are not. Larger ones in its middle alone are not noticed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from umbel.connectors.kafka.fetching import Fetcher, OutOfRange
from umbel.errors import Transient

MEASURED = 200
"""Records read to measure a size, where there are more."""
MEASURED_BYTES = 1 << 20
"""Bytes of records after which no more are read to measure a size."""
SIZE_AGE = 60.0
"""Seconds for which a size is used again."""
GUESS = 512
"""Bytes of a record whose size is not worth measuring."""
LONG = 500
"""Records from which on a range is measured at its end, whatever their size: a measurement takes some milliseconds."""
LARGER = 2
"""How many times larger the last records of a range may be than its first ones."""

_sizes: dict[tuple[str, str, int], _Size] = {}
"""The size that was measured last in each partition."""


@dataclass(frozen=True, slots=True)
class _Size:
    """The size of records at an offset.

    Args:
        bytes: per record.
        offset: of the first of them.
        at: when they were measured, on the monotonic clock.
    """

    bytes: int
    offset: int
    at: float = field(default_factory=time.monotonic)


def fitting(
    partition: tuple[str, str, int], begin: int, high: int, budget: int, measure: Callable[[int], int]
) -> tuple[int, int]:
    """Return where a range ends, and its estimated bytes per record.

    Args:
        partition: id and name of the topic, and the number of the partition.
        begin: the first offset.
        high: the end of the partition.
        budget: approximate limit in bytes; one record is in the range in any case.
        measure: returns the bytes per record from an offset on; OutOfRange and Transient leave them unknown.
    """
    if high - begin <= MEASURED:
        return min(high, begin + max(1, budget // GUESS)), GUESS
    known = _sizes.get(partition, _Size(GUESS, begin, -SIZE_AGE))
    is_old = time.monotonic() - known.at > SIZE_AGE
    if is_old or (begin - known.offset > MEASURED and _is_long(high - begin, known.bytes, budget)):
        known = _sizes[partition] = _Size(_measured(measure, begin, known.bytes), begin)
    end = min(high, begin + max(1, budget // known.bytes))
    is_long = _is_long(end - begin, known.bytes, budget)
    while is_long and end - begin > MEASURED:
        last = _measured(measure, end - MEASURED, known.bytes)
        _sizes[partition] = _Size(last, end - MEASURED)
        if last <= LARGER * known.bytes or (end - begin) * last <= budget:
            return end, max(known.bytes, last)
        end = begin + (end - begin) // 2
    return end, known.bytes


def _is_long(records: int, size: int, budget: int) -> bool:
    """Return whether a range is worth measuring at its end."""
    return records > LONG or records * size > budget / 4


def _measured(measure: Callable[[int], int], offset: int, otherwise: int) -> int:
    try:
        return measure(offset)
    except (OutOfRange, Transient):  # reading the range reports it
        return otherwise


def measured(fetcher: Fetcher) -> int:
    """Return the mean bytes of the next records of a partition.

    Raises:
        OutOfRange: the offset does not exist.
        Transient: the broker does not answer.
    """
    sizes = list[int]()
    for found in fetcher.read(fetcher.next + MEASURED):
        sizes += [len(value or b"") for value in found.values]
        if sum(sizes) > MEASURED_BYTES:
            break
    return 32 + (sum(sizes) // len(sizes) if sizes else GUESS)
