"""Fetching the records of an offset range.

A consumer is retained where it stopped; if the next range begins there, its records have been fetched already.
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
        topic: the topic and its id.
        partition: the partition.
        next: the next offset to read.
        ended: all records before this offset have been received; the broker tells it once, at the end of the partition.
        rest: messages received beyond the last range.
    """

    consumer: Any
    topic: tuple[str, str] = ("", "")
    partition: int = -1
    next: int = -1
    ended: int = -1
    rest: list[Any] = field(default_factory=list)

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
        self._idle: OrderedDict[tuple[str, tuple[str, str], int, int], Fetcher] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, options: Mapping[str, Any], topic: tuple[str, str], partition: int, offset: int) -> Fetcher:
        """Return a consumer at an offset of a partition.

        Args:
            options: by which the cluster is reached.
            topic: its name and id.
            partition: the partition.
            offset: of the first record.
        """
        key = json.dumps(options, sort_keys=True)
        with self._lock:
            found = self._idle.pop((key, topic, partition, offset), None)
            if found is not None:
                return found
            others = [each for each in self._idle if each[0] == key]
            reused = self._idle.pop(others[0]) if len(others) >= IDLE // 2 else None
        if reused is None:
            from confluent_kafka import Consumer

            reused = Fetcher(Consumer({**options, **CONSUMER}))
        reused.seek(topic, partition, offset)
        return reused

    def put(self, options: Mapping[str, Any], fetcher: Fetcher) -> None:
        """Retain a consumer for the next range of its partition."""
        key = json.dumps(options, sort_keys=True)
        with self._lock:
            self._idle[key, fetcher.topic, fetcher.partition, fetcher.next] = fetcher
            extra = [self._idle.popitem(last=False)[1] for _ in range(len(self._idle) - IDLE)]
        for each in extra:
            each.consumer.close()

    def close(self) -> None:
        """Close all consumers."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), OrderedDict()
        for each in idle:
            each.consumer.close()


FETCHERS = Fetchers()
