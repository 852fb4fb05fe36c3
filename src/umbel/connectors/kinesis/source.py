"""A stream of Kinesis as a source: records are staged with the positions behind them.

A position is the sequence number of the last record that was staged, in each shard. Records and positions are one file, so
that each record counts once, whenever the worker dies. A shard that a split or a merge made is read when its parents have
been read to their end.

Kinesis skips records that its retention has deleted without a word. So reading begins at the last record that was staged: if
it is there, nothing behind it is missing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl

from umbel.connectors.kinesis.client import (
    CONNECTIONS,
    StreamClient,
    StreamMissing,
    StreamSummary,
    region_of,
)
from umbel.connectors.kinesis.positions import StreamPositions, stored
from umbel.connectors.kinesis.reading import POLL, FetchedShard, StreamReading
from umbel.connectors.lag import SourceLag
from umbel.connectors.polling import Poller
from umbel.connectors.staged_messages import REPORT, StagedMessage, StagedMessages, staged_frame
from umbel.connectors.staged_source import IDENTITY
from umbel.definitions.arguments import ReadOptions
from umbel.errors import InvalidValue, Transient

if TYPE_CHECKING:
    from umbel.connectors.kinesis import KinesisConnector

PART_BYTES = 16 << 20
"""Bytes of messages from which on a part is written."""
LISTED_FOR, SAVED_FOR = 60.0, 10.0
"""Seconds after which the stream is described again, and after which positions without new records are saved."""
LONGEST_WAIT = 30.0
RECREATED = "the stream was deleted and created again; records of the old one that had not been read are lost"


@dataclass
class _Staging:
    """Records that are to be one part."""

    messages: list[StagedMessage] = field(default_factory=list)
    shards: dict[str, Any] = field(default_factory=dict)
    size: int = 0

    def add(self, fetched: FetchedShard) -> None:
        """Add the records of a shard."""
        self.messages += fetched.messages
        self.size += fetched.size
        self.shards[fetched.shard] = fetched.position.plain


@dataclass
class _Session:
    """The state of the thread that reads.

    Args:
        reading: of the stream, None before it was described.
        described_at: the time of its description, monotonic.
        saved_at: the time at which the positions were saved, monotonic.
        is_loaded: whether the end of each shard was reached once.
    """

    reading: StreamReading | None = None
    described_at: float = 0.0
    saved_at: float = 0.0
    is_loaded: bool = False


@dataclass(frozen=True)
class KinesisSource(StagedMessages):
    """The reading side of a `KinesisConnector`.

    Args:
        connector: the stream.
        options: of the source.
    """

    connector: KinesisConnector
    options: ReadOptions

    has_partitions: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return self.connector.title

    @cached_property
    def client(self) -> StreamClient:
        """The client of the stream."""
        region = region_of(self.connector)
        return StreamClient(self.title, self.connector.stream_arn, region, self.connector.streams.role_arn)

    @cached_property
    def _session(self) -> _Session:
        return _Session()

    def examine(self) -> None:
        """Check at commit that the stream is there and can be read."""
        self._summary()
        try:
            for shard in list(self.client.shards())[:1]:
                self.client.records(self.client.iterator(shard, "LATEST"))
        except StreamMissing as error:
            raise self._missing(error) from None

    def partitions_of(self, places: pl.Series) -> pl.Series | None:
        return places.str.split_exact("@", 1).struct.field("field_0")

    def partitions_in(self, facts: Mapping[str, Any]) -> Collection[str]:
        found: Mapping[str, Any] = facts.get("shards", {})
        return found.keys()

    def known_partitions(self) -> Collection[str]:
        known = self.stage.state().get("shards", {})
        return [shard for shard, each in known.items() if not each["is_done"]]

    def take_over(self) -> None:
        super().take_over()
        self.__dict__.pop("_session", None)

    def read_on(self, poller: Poller) -> float:
        try:
            return self._read_on(poller)
        except BaseException:
            self.__dict__.pop("_session", None)  # positions of records that were not staged
            raise

    def _read_on(self, poller: Poller) -> float:
        reading = self._session.reading
        if reading is None or reading.is_stale or time.monotonic() > self._session.described_at + LISTED_FOR:
            reading = self._described(reading)
        if reading is None:
            return min(LONGEST_WAIT, (self.connector.starts_at or 0.0) - time.time())
        poller.unread = set(reading.unread)
        shards = reading.due(CONNECTIONS)
        if shards and not self.has_room(poller):
            return POLL
        failed, staging = list[FetchedShard](), _Staging()
        for fetched in _fetched(reading, shards):
            failed += [fetched] if fetched.error else []
            self._take(reading, fetched, staging)
        self._stage(staging)
        self._save(reading, is_needed=any(reading.positions.shards[each].is_done for each in shards))
        for each in sorted(failed, key=lambda each: isinstance(each.error, Transient)):
            is_alone = len(failed) < len(shards) and isinstance(each.error, Transient)
            if each.error and (not is_alone or reading.is_failing(each.shard)):
                raise each.error
        poller.progressed(SourceLag(seconds=max(reading.behind.values(), default=None)))
        poller.unread = set(reading.unread)
        self.stage.expire(poller.consumed + 1)
        return reading.rest

    def _take(self, reading: StreamReading, fetched: FetchedShard, staging: _Staging) -> None:
        """Add what was fetched to a part; it is written when it is large."""
        if fetched.report:
            self._stage(staging)
            self._lost(fetched.report, {})
        reading.positions.shards[fetched.shard] = fetched.position
        if fetched.messages:
            staging.add(fetched)
        if staging.size >= PART_BYTES:
            self._stage(staging)

    def _stage(self, staging: _Staging) -> None:
        if staging.messages:
            self.stage.append(staged_frame(staging.messages), {"shards": staging.shards})
        staging.messages, staging.shards, staging.size = [], {}, 0

    def _lost(self, reason: str, shards: dict[str, Any]) -> None:
        """Stage a report of lost records, unless it is the last part."""
        last = self.stage.last()
        if last is None or last.facts.get(REPORT) != reason:
            self.stage.append(pl.DataFrame({IDENTITY: [0]}), {REPORT: reason, "shards": shards})

    def _save(self, reading: StreamReading, *, is_needed: bool) -> None:
        """Save the positions, at times also those that advanced without records."""
        now, session, positions = time.monotonic(), self._session, reading.positions
        is_loaded = session.is_loaded or reading.is_caught_up
        if is_needed or is_loaded != session.is_loaded or now > session.saved_at + SAVED_FOR:
            last = self.stage.last()
            session.saved_at, session.is_loaded = now, is_loaded
            self.stage.save(
                {
                    "stream": self.connector.stream_arn,
                    "created": positions.created,
                    "begun": positions.begun,
                    "shards": {shard: each.plain for shard, each in positions.shards.items()},
                    "part": last.number if last else 0,
                    "loaded": is_loaded,
                }
            )

    def _described(self, before: StreamReading | None) -> StreamReading | None:
        """Return the reading of the stream; None if it begins in the future."""
        summary = self._summary()
        state = self.stage.state()
        if state.get("stream") != self.connector.stream_arn:  # a new source, or one that had another stream before
            state = {}
            if (self.connector.starts_at or 0.0) > summary.now:
                return None
            begun = summary.now if self.connector.is_latest else self.connector.starts_at
            positions = StreamPositions(summary.created, begun)
        elif before is not None:
            positions = before.positions
        else:
            numbers = [each for each in self.stage.numbers() if each > state["part"]]
            positions = stored(state, [self.stage.part(each).facts for each in numbers])
        if positions.created != summary.created:
            self._lost(f"{self.title}: {RECREATED}", {})
            before, positions = None, StreamPositions(summary.created, None)
        return self._listed(summary, positions, before, is_loaded=bool(state.get("loaded")))

    def _listed(
        self, summary: StreamSummary, positions: StreamPositions, before: StreamReading | None, *, is_loaded: bool
    ) -> StreamReading:
        """Return the reading of a stream with the shards that it has now."""
        try:
            listed = self.client.shards()
        except StreamMissing as error:
            raise self._missing(error) from None
        lost = positions.update(listed)
        for shard, reason in lost:
            self._lost(f"{self.title}, {shard}: {reason}", {shard: positions.shards[shard].plain})
        positions.prune(listed)
        found = before or StreamReading(self.client, summary, listed, positions)
        found.summary, found.listed, found.is_stale = summary, listed, False
        found.behind = {shard: each for shard, each in found.behind.items() if shard in listed}
        session = self._session
        session.reading, session.described_at, session.is_loaded = found, time.monotonic(), is_loaded
        self._save(found, is_needed=True)
        return found

    def _summary(self) -> StreamSummary:
        try:
            found = self.client.describe()
        except StreamMissing as error:
            raise self._missing(error) from None
        if found.status == "CREATING":
            raise Transient(f"{self.title}: the stream is being created")
        return found

    def _missing(self, error: Exception) -> InvalidValue:
        return InvalidValue(
            f"{self.title}: there is no such stream: {error}",
            hint="create it, or correct stream_arn; records that were not read before it was deleted are lost",
        )


def _fetched(reading: StreamReading, shards: list[str]) -> Iterator[FetchedShard]:
    """Yield new records of shards, fetched at the same time."""
    if len(shards) < 2:
        yield from map(reading.fetch, shards)
        return
    with ThreadPoolExecutor(len(shards), thread_name_prefix="kinesis") as pool:
        yield from pool.map(reading.fetch, shards)
