"""Reading of a stream: iterators of its shards, and what is missing behind a position."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from umbel.connectors.kinesis.aggregation import disaggregated
from umbel.connectors.kinesis.client import (
    IteratorRefused,
    ShardRecords,
    StreamClient,
    StreamMissing,
    StreamShard,
    StreamSummary,
)
from umbel.connectors.kinesis.positions import ShardPosition, StreamPositions, instant
from umbel.connectors.staged_messages import StagedMessage
from umbel.errors import Transient, UmbelError

POLL, STEP = 0.5, 0.2
"""Seconds between two requests for a shard that has nothing new, and for one that has: Kinesis allows five a second."""
CURRENT = 10.0
"""Seconds behind the newest record within which a shard counts as read."""
LONGEST_PAUSE = 10.0
LASTING = 4
"""Failed requests for a shard from which on the failure is reported, although others can be read."""
FOREIGN = (
    "its partition key belongs to another shard: the Kinesis Producer Library puts such a message again, "
    "where it belongs; replay this one if it is not there"
)


@dataclass(frozen=True, slots=True)
class FetchedShard:
    """The outcome of one request for a shard.

    Args:
        shard: its id.
        position: behind the records.
        messages: of the records.
        size: their bytes.
        report: what is missing before them, empty for nothing.
        error: why there are none.
    """

    shard: str
    position: ShardPosition
    messages: Sequence[StagedMessage] = ()
    size: int = 0
    report: str = ""
    error: UmbelError | None = None


@dataclass
class StreamReading:
    """The iterators of the shards of a stream, and when each is to be read.

    Args:
        client: makes the requests.
        summary: of the stream.
        listed: its shards.
        positions: in them.
    """

    client: StreamClient
    summary: StreamSummary
    listed: Mapping[str, StreamShard]
    positions: StreamPositions
    is_stale: bool = False
    """True if the stream must be described again: it may be another one, or have other shards."""
    behind: dict[str, float] = field(default_factory=dict)
    """Seconds from the last record read to the newest one, by shard."""
    _iterators: dict[str, str] = field(default_factory=dict)
    _unverified: set[str] = field(default_factory=set)
    _refused: set[str] = field(default_factory=set)
    _due: dict[str, float] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)
    _read_at: dict[str, float] = field(default_factory=dict)

    def due(self, most: int) -> list[str]:
        """Return the shards to be read now, those that waited longest first."""
        now = time.monotonic()
        waiting = [each for each in self.positions.readable(self.listed) if self._due.get(each, 0.0) <= now]
        return sorted(waiting, key=lambda shard: self._due.get(shard, 0.0))[:most]

    @property
    def rest(self) -> float:
        """Seconds until a shard is to be read."""
        times = [self._due.get(each, 0.0) for each in self.positions.readable(self.listed)]
        return max(0.0, min(POLL, min(times, default=0.0) - time.monotonic())) if times else POLL

    @property
    def is_caught_up(self) -> bool:
        """True if each shard has been read up to some seconds ago."""
        return all(
            self.behind.get(shard, CURRENT) < CURRENT
            for shard in self.listed
            if not self.positions.shards[shard].is_done
        )

    @property
    def unread(self) -> frozenset[str]:
        """The shards that have more records, or may have some."""
        since = time.monotonic() - CURRENT
        is_read = {
            shard for shard, read_at in self._read_at.items() if read_at > since and not self.behind.get(shard, 1)
        }
        return frozenset(
            shard
            for shard in self.listed
            if (shard not in is_read or shard in self._failures) and not self.positions.shards[shard].is_done
        )

    def fetch(self, shard: str) -> FetchedShard:
        """Return new records of a shard. Threads may fetch different shards at once."""
        position, now = self.positions.shards[shard], time.time()
        try:
            if shard not in self._iterators or self._may_be_behind_retention(position, now):
                self._seek(shard, position)
            answer = self.client.records(self._iterators[shard])
        except (StreamMissing, IteratorRefused) as error:
            self.is_stale |= isinstance(error, StreamMissing) or shard in self._refused
            self._pause(shard)
            trouble = Transient(f"{self.client.title}, {shard}: it cannot be read now: {error}")
            return FetchedShard(shard, position, error=trouble if self.is_failing(shard) else None)
        except UmbelError as error:
            self._pause(shard)
            return FetchedShard(shard, position, error=error)
        return self._received(shard, position, answer, now)

    def is_failing(self, shard: str) -> bool:
        """Return whether several requests for a shard have failed, one after the other."""
        return self._failures.get(shard, 0) >= LASTING

    def _received(self, shard: str, position: ShardPosition, answer: ShardRecords, now: float) -> FetchedShard:
        records, report = answer.records, ""
        if shard in self._unverified and (records or not answer.behind or answer.next is None):
            self._unverified.discard(shard)
            is_there = bool(records) and records[0]["SequenceNumber"] == position.sequence
            if not is_there and position.may_have_lost(self.summary.retention, now):
                report = self._gap(shard, position, _arrived(records[0]) if records else now)
        known = int(position.sequence or -1)
        records = [each for each in records if int(each["SequenceNumber"]) > known]
        if answer.next is None:
            self._iterators.pop(shard, None)
            self.is_stale = True
        else:
            self._iterators[shard] = answer.next
        self.behind[shard], self._read_at[shard] = answer.behind, time.monotonic()
        self._failures.pop(shard, None)
        self._due[shard] = time.monotonic() + (STEP if answer.behind else POLL)
        reached = replace(position, reached=now - answer.behind, is_done=answer.next is None)
        if records:
            last = records[-1]
            reached = replace(reached, sequence=last["SequenceNumber"], arrived=_arrived(last))
        messages = [message for record in records for message in self._messages(shard, record)]
        return FetchedShard(shard, reached, messages, sum(len(each.data) for each in messages), report)

    def _seek(self, shard: str, position: ShardPosition) -> None:
        """Begin at the last record that was staged, which then must be the first one."""
        if position.sequence:
            self._iterators[shard] = self._iterator_at(shard, position.sequence)
        elif self.positions.begun is None:
            self._iterators[shard] = self.client.iterator(shard, "TRIM_HORIZON")
        else:
            at = datetime.fromtimestamp(self.positions.begun, UTC)
            self._iterators[shard] = self.client.iterator(shard, "AT_TIMESTAMP", Timestamp=at)
        if position.sequence or position.reached:
            self._unverified.add(shard)

    def _iterator_at(self, shard: str, sequence: str) -> str:
        try:
            return self.client.iterator(shard, "AT_SEQUENCE_NUMBER", StartingSequenceNumber=sequence)
        except IteratorRefused:
            if shard not in self._refused:  # it may be another stream: that is looked up before the next attempt
                self._refused.add(shard)
                raise
            return self.client.iterator(shard, "TRIM_HORIZON")

    def _may_be_behind_retention(self, position: ShardPosition, now: float) -> bool:
        return bool(position.reached) and now - position.reached > self.summary.retention

    def _gap(self, shard: str, position: ShardPosition, until: float) -> str:
        since = instant(max(position.reached, position.arrived))
        return (
            f"{self.client.title}, {shard}: records that arrived between {since} and {instant(until)} may have been deleted "
            f"before they were read: the stream retains them for {self.summary.retention / 3600:g} h"
        )

    def _pause(self, shard: str) -> None:
        self._iterators.pop(shard, None)
        self._failures[shard] = failures = self._failures.get(shard, 0) + 1
        self._due[shard] = time.monotonic() + min(LONGEST_PAUSE, POLL * 2.0 ** (failures - 1))

    def _messages(self, shard: str, record: Mapping[str, Any]) -> list[StagedMessage]:
        data, place = bytes(record["Data"]), f"{shard}@{record['SequenceNumber']}"
        parts = disaggregated(data)
        if parts is None:
            return [StagedMessage(data, place)]
        own = self.listed[shard]
        return [
            StagedMessage(
                each.data,
                f"{place}#{number}",
                None if each.hash_key is None or own.low <= each.hash_key <= own.high else FOREIGN,
            )
            for number, each in enumerate(parts)
        ]


def _arrived(record: Mapping[str, Any]) -> float:
    found: float = record["ApproximateArrivalTimestamp"].timestamp()
    return found
