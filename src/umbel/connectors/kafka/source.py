"""A topic as a source: the offset ranges of its partitions are its splits.

Rows are numbered by partition and by offset, counted from the first offset that was ever planned: `partition << 44 | count`. A
topic that was deleted and created again goes on where its predecessor stopped.

Only committed records are read; those of an open transaction hold the watermark until it ends. Offsets without a visible record
(markers and aborted records of transactions, compacted records) are counted, since a broker does not say which of them was what.
Records that were there to be read and are not any more, because retention or a user deleted them, are one rejected record for
each range.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from umbel.connectors.credentials import resolved
from umbel.connectors.kafka.clients import Cluster, Topic, settings, unreachable
from umbel.connectors.kafka.examining import examine
from umbel.connectors.kafka.fetching import FETCHERS, EndsEarlier, OutOfRange
from umbel.connectors.kafka.offset_ranges import CUT, DELETED, PARTITION_SHIFT, RECREATED, OffsetRange, located
from umbel.connectors.kafka.open_transactions import OpenTransactions
from umbel.connectors.kafka.record_sizes import fitting, measured
from umbel.connectors.lag import SourceLag
from umbel.connectors.splits import Found, Landmark, Position, SourceSize, Split, SplitSource
from umbel.errors import Terminal, Transient
from umbel.formats.declarations import Avro, Protobuf
from umbel.formats.messages import message_format
from umbel.formats.raw_batch import RawBatch
from umbel.formats.registry import SchemaRegistry, registry
from umbel.types.dtype import DType

if TYPE_CHECKING:
    from umbel.connectors.kafka import Kafka, KafkaConnector

PARTITIONS = 1 << 12
SPLIT_BYTES = 32 << 20
DELETED_FOR = 30.0
"""Seconds for which a topic must be missing to count as deleted, as a starting broker may not know its topics yet."""
SHORT_FOR = 10.0
"""Seconds for which a partition must end before the offset reached to count as cut, as a new leader may not know its end yet."""
MOST_ENDS = 64
"""Ends of partitions that are retained to know for how long messages have waited."""


@dataclass(frozen=True, slots=True)
class TopicSource(SplitSource):
    """The reading side of a `KafkaConnector`.

    Args:
        connector: the topic.
        split_bytes: the approximate size of a split in bytes.
    """

    connector: KafkaConnector
    split_bytes: int = SPLIT_BYTES
    _ends: list[_Ends] = field(default_factory=list, init=False, repr=False, compare=False)
    """The ends of the partitions as plans found them, from the first that have unread messages to the last."""
    _short: dict[tuple[str, int], tuple[float, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The partitions that end before the offset reached: since when, and where they ended then."""
    _open: OpenTransactions = field(default_factory=OpenTransactions, init=False, repr=False, compare=False)

    @property
    def failure_domain(self) -> Kafka:
        return self._kafka

    @property
    def trouble(self) -> str:
        return self._open.trouble

    def examine(self) -> None:
        examine(self.connector)

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return the unread offset ranges up to a byte budget, and the position after them.

        Args:
            position: `{"id": of the topic, "next": {partition: [next offset, shift of the numbers]}}`.
            budget: approximate limit in bytes.

        Raises:
            Transient: the cluster does not answer, or has no such topic.
            Terminal: the topic has more partitions or records than rows can be numbered for.
        """
        cluster = Cluster.of(self._kafka)
        topic = cluster.topic(self.connector.topic)
        if topic is None:
            raise Transient(f"{self.connector.title}: there is no such topic", hint="create it, or check its name")
        if len(topic.partitions) > PARTITIONS:
            raise Terminal(f"{self.connector.title}: more than {PARTITIONS} partitions", hint="use several topics")
        ends = cluster.offsets(self.connector.topic, topic.partitions)
        written = cluster.written(self.connector.topic, topic.partitions)  # after the ends: none of these is missed
        self._open.note(ends, written)
        self._note(_Ends(topic.id, ends, time.monotonic()), position)
        found, reached = self._gone(position, topic, ends)
        found += self._cut(topic, ends, reached)
        waiting = {part: end - reached[part][0] for part, (_, end) in ends.items() if end > reached[part][0]}
        for number, part in enumerate(sorted(waiting, key=lambda part: waiting[part])):
            share = budget // (len(waiting) - number)
            if budget <= 0:
                break
            taken = self._ranges(topic, part, reached[part], ends[part][1], share)
            budget -= sum(size for _, size in taken)
            reached[part] = [taken[-1][0]["end"], reached[part][1]]
            found += taken
        if not found:
            return (), position
        return found, {"id": topic.id, "next": {str(part): each for part, each in reached.items()}}

    def partition_of(self, split: Split) -> str:
        return str(split["partition"])

    def unread_partitions(self, position: Position) -> Collection[str]:
        """Return the partitions with messages beyond a position, also with those of open transactions."""
        unread = self._ends[-1].unread(position) if self._ends else {}
        return [str(part) for part, count in unread.items() if count or part in self._open]

    def measure(self, position: Position) -> SourceSize:
        """Return the records behind a position, by their offsets."""
        cluster = Cluster.of(self._kafka)
        topic = cluster.topic(self.connector.topic)
        if topic is None:
            return SourceSize(0, 0)
        ends = cluster.offsets(self.connector.topic, topic.partitions)
        _, reached = self._gone(position, topic, ends)
        return SourceSize(rows=sum(max(0, end - reached[part][0]) for part, (_, end) in ends.items()))

    def lag(self, position: Position) -> SourceLag:
        """Return the messages beyond a position, and for how long plans know them."""
        if not self._ends:
            return SourceLag()
        waiting = next((each.at for each in self._ends if each.has_unread(position)), None)
        seconds = 0.0 if waiting is None else time.monotonic() - waiting
        return SourceLag(rows=sum(self._ends[-1].unread(position).values()), seconds=seconds)

    def _note(self, found: _Ends, position: Position) -> None:
        known = self._ends
        if not known or (known[-1].id, known[-1].ends) != (found.id, found.ends):
            known[:] = [each for each in known if each.id == found.id and each.has_unread(position)]
            known.append(found)
        if len(known) > MOST_ENDS:
            del known[1:-1:2]

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a range.

        Args:
            split: as planned.
            requested: the requested columns and their types.
            exact: True if only these columns are returned.

        Raises:
            Transient: the cluster or the schema registry does not answer.
        """
        part = _range(self.connector.topic, split)
        if "lost" in split:
            yield part.lost(split["lost"])
            return
        form = message_format(self.connector.format, requested, exact=exact, schemas=self._schemas())
        if self._is_recreated(split["id"]):
            yield part.lost("the topic was deleted, or deleted and created again, before they were read")
            return
        options, name = settings(self._kafka), (self.connector.topic, split["id"])
        while part.begin < part.end:
            fetcher = FETCHERS.take(options, name, part.partition, part.begin)
            try:
                for fetched in fetcher.read(part.end):
                    yield from part.batches(fetched, form)
                    part.begin = fetcher.next
            except OutOfRange as error:
                fetcher.consumer.close()
                yield from self._passed(part, split["id"], error)
                continue
            except BaseException:
                fetcher.consumer.close()
                raise
            FETCHERS.put(fetcher)

    def landmark_of(self, split: Split) -> Landmark | None:
        """Return by how much the numbers of a partition's rows differ from offsets."""
        return _range(self.connector.topic, split).landmark(split["id"])

    def location_of(self, number: int, landmark: Landmark | None) -> str:
        """Return the partition and the offset of a row."""
        return located(self.connector.topic, number, landmark)

    @property
    def _kafka(self) -> Kafka:
        return self.connector.cluster

    def _schemas(self) -> SchemaRegistry | None:
        form = self.connector.format
        if not isinstance(form, Avro | Protobuf):
            return None
        user = None
        if form.username is not None:
            user = (resolved(form.username), resolved(form.password or ""))
        token = None if form.token is None else resolved(form.token)
        return registry(form.url, user, token, "serialized" if isinstance(form, Protobuf) else "")

    def _gone(
        self, position: Position, topic: Topic, ends: Mapping[int, tuple[int, int]]
    ) -> tuple[list[Found], dict[int, list[int]]]:
        """Return splits that report deleted records, and where each partition is read next."""
        before = {int(part): each for part, each in position["next"].items()} if position else {}
        is_same = not position or position["id"] == topic.id
        found = list[Found]()
        if not is_same:
            begin, shift = before.get(0, [0, 0])
            found.append((_split(topic.id, 0, begin, begin + 1, shift, lost=RECREATED), 1))
            before = {part: [0, at + shift + (part == 0)] for part, (at, shift) in before.items()}
        reached = {part: each for part, each in before.items() if part not in ends}
        for part, (low, _) in ends.items():
            begin, shift = before.get(part, [low, -low])
            if low > begin:
                if is_same and part in before:
                    found.append((_split(topic.id, part, begin, low, shift, lost=DELETED), 1))
                begin = low
            reached[part] = [begin, shift]
        return found, reached

    def _cut(self, topic: Topic, ends: Mapping[int, tuple[int, int]], reached: dict[int, list[int]]) -> Iterator[Found]:
        """Yield the reports of partitions that end before the offset reached.

        They are read on from their ends.
        """
        for part, (_, end) in ends.items():
            (begin, shift), key = reached[part], (topic.id, part)
            if begin <= end:
                self._short.pop(key, None)
                continue
            since, cut = self._short.setdefault(key, (time.monotonic(), end))
            if time.monotonic() - since > SHORT_FOR:
                del self._short[key]
                yield _split(topic.id, part, begin, begin + 1, shift, lost=CUT), 1
                reached[part] = [cut, max(shift + begin + 1 - cut, 1)]  # positive: these offsets are read again

    def _ranges(self, topic: Topic, part: int, reached: Sequence[int], high: int, budget: int) -> list[Found]:
        begin, shift = reached
        if high + shift >= 1 << PARTITION_SHIFT:
            raise Terminal(f"{self.connector.title}: partition {part} has more records than can be numbered")
        name = (topic.id, self.connector.topic, part)
        end, size = fitting(name, begin, high, budget, lambda offset: self._measured(topic, part, offset))
        step = max(1, self.split_bytes // size)
        return [
            (_split(topic.id, part, at, min(at + step, end), shift), (min(at + step, end) - at) * size)
            for at in range(begin, end, step)
        ]

    def _measured(self, topic: Topic, part: int, begin: int) -> int:
        fetcher = FETCHERS.take(settings(self._kafka), (self.connector.topic, topic.id), part, begin, is_sample=True)
        try:
            size = measured(fetcher)
        except BaseException:
            fetcher.consumer.close()
            raise
        fetcher.rest.clear()
        FETCHERS.put(fetcher)
        return size

    def _is_recreated(self, id: str) -> bool:
        """Return whether there is no topic of that name and id any more."""
        cluster, since = Cluster.of(self._kafka), time.monotonic()
        while (topic := cluster.topic(self.connector.topic)) is None and time.monotonic() - since < DELETED_FOR:
            time.sleep(0.2)
        return topic is None or topic.id != id

    def _passed(self, part: OffsetRange, id: str, error: OutOfRange) -> Iterator[RawBatch]:
        """Yield the report of records that do not exist, and go on behind them."""
        cluster = Cluster.of(self._kafka)
        topic = None if self._is_recreated(id) else cluster.topic(self.connector.topic)
        if topic is None or part.partition not in topic.partitions:
            yield part.lost("the topic was deleted while they were read")
            part.begin = part.end
            return
        low, high = cluster.offsets(self.connector.topic, [part.partition])[part.partition]
        if low > part.begin:
            reached = min(low, part.end)
            yield part.until(reached).lost(DELETED)
            part.begin = reached
        elif high < part.begin or (isinstance(error, EndsEarlier) and high < part.end):
            yield part.lost(f"the partition ends at offset {high}: the broker has lost them")
            part.begin = part.end
        elif isinstance(error, EndsEarlier):
            raise unreachable(f"{part.topic}[{part.partition}]@{part.begin}", error) from error
        else:
            time.sleep(0.2)  # the broker has just started, it seems


@dataclass(frozen=True, slots=True)
class _Ends:
    """The ends of a topic's partitions as they were.

    Args:
        id: of the topic.
        ends: the first and last offset of each partition.
        at: when they were, on the monotonic clock.
    """

    id: str
    ends: Mapping[int, tuple[int, int]]
    at: float

    def unread(self, position: Position) -> dict[int, int]:
        """Return the number of messages of each partition beyond a position."""
        is_same = position is not None and position["id"] == self.id
        reached = {int(part): each[0] for part, each in position["next"].items()} if is_same else {}
        return {part: max(0, end - max(low, reached.get(part, low))) for part, (low, end) in self.ends.items()}

    def has_unread(self, position: Position) -> bool:
        """Return True if there are messages beyond a position."""
        return any(self.unread(position).values())


def _split(id: str, partition: int, begin: int, end: int, shift: int, **lost: str) -> dict[str, Any]:
    return {"id": id, "partition": partition, "begin": begin, "end": end, "shift": shift, **lost}


def _range(topic: str, split: Split) -> OffsetRange:
    return OffsetRange(topic, split["partition"], split["begin"], split["end"], split["shift"])
