"""Ranges of offsets, the splits of a topic: their records as numbered rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from umbel.connectors.kafka.fetching import Fetched
from umbel.connectors.splits import Landmark
from umbel.formats.chunks import CHUNK_BYTES
from umbel.formats.messages import MessageFormat, with_tombstones
from umbel.formats.raw_batch import RawBatch, lost

PARTITION_SHIFT = 44
"""Bits of a row's number that count the records of a partition."""
SKIPPED, LOST, TOMBSTONES = "offsets_without_record", "lost_records", "tombstones"
"""Names of counts."""
DELETED = "they were deleted from the topic before they were read (retention)"
RECREATED = "the topic was deleted and created again; records of the old one that had not been read are lost"
CUT = (
    "the partition ended before the offset up to which it had been read, so the broker has lost records (a lost disk, or an "
    "unclean leader election); it is read on from that end, and what was written there before this was seen is missing"
)
_UNCOUNTED = frozenset({RECREATED, CUT})
"""Reasons for which nobody knows how many records are lost."""


@dataclass(slots=True)
class OffsetRange:
    """An offset range of a partition.

    Args:
        topic: the topic's name.
        partition: the partition.
        begin: its first offset that was not read yet.
        end: the offset behind it.
        shift: added to an offset, gives a row's number within the partition.
    """

    topic: str
    partition: int
    begin: int
    end: int
    shift: int

    def until(self, end: int) -> OffsetRange:
        """Return its part before an offset."""
        return OffsetRange(self.topic, self.partition, self.begin, end, self.shift)

    def batches(self, fetched: Fetched, form: MessageFormat) -> Iterator[RawBatch]:
        """Yield records as rows, at most about `CHUNK_BYTES` at once."""
        size = sum(map(len, filter(None, fetched.values)))
        step = max(1, len(fetched.values) * CHUNK_BYTES // max(size, CHUNK_BYTES))
        counts = {SKIPPED: fetched.skipped, TOMBSTONES: fetched.values.count(None)}
        for start in range(0, len(fetched.values), step):
            values, offsets = fetched.values[start : start + step], fetched.offsets[start : start + step]
            row = 0
            for raw in with_tombstones(form, values):
                height = raw.frame.height
                yield self._batch(raw, values[row : row + height], offsets[row : row + height], counts)
                row, counts = row + height, {}
        if not fetched.values:
            nothing = lost("", 0)
            yield RawBatch(nothing, self._number(self.begin), str, lambda _: b"", counts=counts)

    def _batch(
        self, raw: Any, values: Sequence[bytes | None], offsets: Sequence[int], counts: Mapping[str, int]
    ) -> RawBatch:
        begin, steps = offsets[0], None
        if offsets[-1] - begin != len(offsets) - 1:
            steps = pl.Series(offsets, dtype=pl.Int64) - begin
        return RawBatch(
            raw,
            self._number(begin),
            lambda row: self._place(offsets[row]),
            lambda row: values[row] or b"",
            counts={name: count for name, count in counts.items() if count},
            steps=steps,
        )

    def lost(self, reason: str) -> RawBatch:
        """Return the rejected record that reports why the records of the range are missing."""
        where, count = self._place(self.begin), self.end - self.begin
        text = f"{count} records from offset {self.begin} to {self.end - 1} are missing: {reason}"
        if reason in _UNCOUNTED:
            text = reason
        raw = json.dumps(
            {"topic": self.topic, "partition": self.partition, "begin": self.begin, "end": self.end}
        ).encode()
        return RawBatch(lost(text), self._number(self.begin), lambda _: where, lambda _: raw, counts={LOST: count})

    def landmark(self, topic: str) -> Landmark:
        """Return the number of its first row, and how numbers differ from offsets.

        Args:
            topic: the id of the topic.
        """
        return self._number(self.begin), f"{self.partition} {self.shift} {topic}"

    def _number(self, offset: int) -> int:
        return (self.partition << PARTITION_SHIFT) + offset + self.shift

    def _place(self, offset: int) -> str:
        return _place(self.topic, self.partition, offset, self.shift)


def located(topic: str, number: int, landmark: Landmark | None) -> str:
    """Return the partition and the offset of a row.

    Args:
        topic: its name.
        number: of the row.
        landmark: the last one up to the row.
    """
    partition, own = divmod(number, 1 << PARTITION_SHIFT)
    of, shift = map(int, landmark[1].split()[:2]) if landmark else (-1, 0)
    return _place(topic, partition, own - shift, shift) if of == partition else f"{topic}[{partition}], row {own}"


def _place(topic: str, partition: int, offset: int, shift: int) -> str:
    """Return the place of a record, which no other one of the topic's name has.

    A topic that was created again, or a partition that was cut, has offsets for the second time; the shift is then positive.
    """
    again = f", row {offset + shift}" if shift > 0 else ""
    return f"{topic}[{partition}]@{offset}{again}"
