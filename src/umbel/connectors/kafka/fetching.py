"""Fetching the records of an offset range.

A consumer is retained where it stopped; if the next range begins there, its records have been fetched already. It goes on
requesting, and assigned to another partition it must wait for the answer first. So partitions beyond those with a consumer of
their own are read by roving ones, whose requests return at once; as they would burden the broker, they are closed when unused.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from umbel.connectors.kafka.clients import UNKNOWN_TOPIC, unreachable

MESSAGES = 20_000
"""Messages taken from a consumer at once."""
WAIT = 0.1
"""Seconds to wait for a first message."""
PATIENCE = 60.0
"""Seconds after which a partition that ends before the range has no more records."""
UNANSWERED = 15.0
"""Seconds without an answer after which a range is given up, to be read again; a broker that starts anew takes less."""
IDLE = 8
"""Consumers that are retained in a process."""
UNUSED = 10.0
"""Seconds after which a consumer that is not read on is assigned to another partition."""
UNUSED_ROVING = 2.0
"""Seconds after which a roving consumer is closed."""
CONSUMER: Mapping[str, Any] = {
    "group.id": "umbel",  # required by librdkafka; nothing is ever committed to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 50,
    "fetch.queue.backoff.ms": 10,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 32 << 10,
    "max.partition.fetch.bytes": 8 << 20,
}
"""Settings that reading depends on; users cannot change them."""
ROVING: Mapping[str, Any] = {"fetch.wait.max.ms": 1}
"""Those in which a roving consumer differs."""
SAMPLING: Mapping[str, Any] = {"queued.min.messages": 1, "max.partition.fetch.bytes": 64 << 10}
"""Those in which one for a few records differs."""


_Location = tuple[str, tuple[str, str], int, int]
"""A cluster, a topic, a partition and an offset."""


class OutOfRange(Exception):
    """The broker has no record at the offset, or no such partition."""


class EndsEarlier(OutOfRange):
    """The partition has ended before the range for `PATIENCE`, as the broker says."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records in order.

    Args:
        offsets: of the records.
        values: their values, None for tombstones.
        skipped: offsets before, between and behind them that have no visible record.
    """

    offsets: Sequence[int]
    values: Sequence[bytes | None]
    skipped: int


@dataclass(slots=True)
class Fetcher:
    """A consumer of one partition.

    Args:
        consumer: of librdkafka.
        cluster: what it is for: a cluster, as JSON.
        is_roving: whether it goes from partition to partition.
        topic: the topic and its id.
        partition: the partition.
        next: the next offset to read.
        ended: all records before this offset have been received; the broker tells it once, at the end of the partition.
        rest: messages received beyond the last range.
        idle_at: when it was retained last, on the monotonic clock.
    """

    consumer: Any
    cluster: str = ""
    is_roving: bool = False
    topic: tuple[str, str] = ("", "")
    partition: int = -1
    next: int = -1
    ended: int = -1
    rest: list[Any] = field(default_factory=list)
    idle_at: float = 0.0

    @property
    def location(self) -> _Location:
        """The cluster, topic, partition and offset that it reads on from."""
        return self.cluster, self.topic, self.partition, self.next

    def seek(self, topic: tuple[str, str], partition: int, offset: int) -> None:
        """Begin to fetch a partition at an offset."""
        from confluent_kafka import TopicPartition

        self.topic, self.partition, self.next, self.ended, self.rest = topic, partition, offset, -1, []
        self.consumer.assign([TopicPartition(topic[0], partition, offset)])

    def read(self, end: int) -> Iterator[Fetched]:
        """Yield the records up to an offset.

        Raises:
            OutOfRange: the next offset does not exist, or records behind it do not, which the broker had before.
            Transient: the broker does not answer.
        """
        from confluent_kafka import Message

        since, trouble = time.monotonic(), "no answer"
        while self.next < end:
            begin, messages = self.next, self._messages()
            errors = list(map(Message.error, messages))
            if {*map(type, errors)} - {type(None)}:  # errors cannot be compared with None
                is_late = (error is None and each.offset() >= end for each, error in zip(messages, errors, strict=True))
                cut = next((number for number, late in enumerate(is_late) if late), len(messages))
                trouble = self._judge([each for each in messages[:cut] if each.error() is not None], trouble)
                records = [each for each in messages[:cut] if each.error() is None]
                self.rest = messages[cut:]
                offsets = list(map(Message.offset, records))
            else:
                offsets = list(map(Message.offset, messages))
                cut = bisect_left(offsets, end)
                records, offsets, self.rest = messages[:cut], offsets[:cut], messages[cut:]
            received = end if self.rest else min(self.ended, end)
            self.next = max(begin, received, offsets[-1] + 1 if offsets else 0)
            if self.next > begin:
                since = time.monotonic()
                yield Fetched(offsets, list(map(Message.value, records)), self.next - begin - len(offsets))
            elif self.ended == self.next:
                if time.monotonic() - since > PATIENCE:
                    raise EndsEarlier(f"the partition ended at offset {self.ended}")
            elif time.monotonic() - since > UNANSWERED:
                raise unreachable(f"{self.topic[0]}[{self.partition}]@{self.next}", trouble)

    def _messages(self) -> list[Any]:
        if self.rest:
            messages, self.rest = self.rest, []
            return messages
        found: list[Any] = self.consumer.consume(MESSAGES, 0)
        return found or self.consumer.consume(1, WAIT)

    def _judge(self, events: Sequence[Any], trouble: str) -> str:
        """Return the text of the last error; raise where waiting cannot help."""
        for event in events:
            error, name = event.error(), event.error().name()
            if name in {"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"} | UNKNOWN_TOPIC:
                raise OutOfRange(str(error))
            if error.fatal():
                raise unreachable(f"{self.topic[0]}[{self.partition}]", error.str())
            if name == "_PARTITION_EOF":
                self.ended = max(self.ended, event.offset())
            else:
                trouble = error.str()
        return trouble


class Fetchers:
    """The idle consumers of this process; one that continues where it stopped has records ready."""

    def __init__(self) -> None:
        self._idle: OrderedDict[_Location, Fetcher] = OrderedDict()
        self._roving: OrderedDict[_Location, Fetcher] = OrderedDict()
        self._lock = threading.Lock()
        self._is_sweeping = False

    def take(
        self,
        options: Mapping[str, Any],
        topic: tuple[str, str],
        partition: int,
        offset: int,
        *,
        is_sample: bool = False,
    ) -> Fetcher:
        """Return a consumer at an offset of a partition.

        Args:
            options: by which the cluster is reached.
            topic: its name and id.
            partition: the partition.
            offset: of the first record.
            is_sample: whether it is for a few records only.
        """
        cluster = json.dumps([options, is_sample], sort_keys=True)
        location = cluster, topic, partition, offset
        with self._lock:
            if found := self._idle.pop(location, None) or self._roving.pop(location, None):
                return found
            others = [each for each in self._idle.values() if each.cluster == cluster]
            is_full = len(others) >= IDLE // 2
            is_roving = is_sample or (is_full and time.monotonic() - others[0].idle_at < UNUSED)
            if is_roving:
                others = [each for each in self._roving.values() if each.cluster == cluster]
            reused = others[0] if others and (is_roving or is_full) else None
            if reused is not None:
                del (self._roving if is_roving else self._idle)[reused.location]
        if reused is None:
            from confluent_kafka import Consumer

            special = {**(ROVING if is_roving else {}), **(SAMPLING if is_sample else {})}
            reused = Fetcher(Consumer({**options, **CONSUMER, **special}), cluster, is_roving)
        reused.seek(topic, partition, offset)
        return reused

    def put(self, fetcher: Fetcher) -> None:
        """Retain a consumer for the next range of its partition, or of another one."""
        fetcher.idle_at = time.monotonic()
        with self._lock:
            idle = self._roving if fetcher.is_roving else self._idle
            same = idle.pop(fetcher.location, None)
            idle[fetcher.location] = fetcher
            extra = [self._idle.popitem(last=False)[1] for _ in range(len(self._idle) - IDLE)]
            if fetcher.is_roving and not self._is_sweeping:
                self._is_sweeping = True
                threading.Thread(target=self._sweep, name="kafka consumers", daemon=True).start()
        for each in [*extra, *([same] if same else [])]:
            each.consumer.close()

    def _sweep(self) -> None:
        """Close roving consumers that are not used any more, until there are none."""
        is_over = False
        while not is_over:
            time.sleep(UNUSED_ROVING)
            before = time.monotonic() - UNUSED_ROVING
            with self._lock:
                unused = [location for location, each in self._roving.items() if each.idle_at < before]
                closed = [self._roving.pop(location) for location in unused]
                is_over = not self._roving
                self._is_sweeping = not is_over
            for each in closed:
                each.consumer.close()

    def close(self) -> None:
        """Close all consumers."""
        with self._lock:
            idle = [*self._idle.values(), *self._roving.values()]
            self._idle.clear()
            self._roving.clear()
        for each in idle:
            each.consumer.close()


FETCHERS = Fetchers()
