"""A topic as a sink: Debezium's envelopes, written in transactions.

The offset of the position is batch + 2, and its metadata the rows of the next batch.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import orjson

from umbel.connectors.kafka.clients import Cluster, settings
from umbel.connectors.kafka.transactions import TransactionalTopic
from umbel.connectors.sinks import (
    Isolation,
    Refusal,
    RowChange,
    RowsRefused,
    SinkPosition,
    SinkWriter,
    divided,
    none_accepted,
)
from umbel.errors import Transient

if TYPE_CHECKING:
    from umbel.connectors.kafka import KafkaConnector

MANY = 20
"""Changes of which the smallest is tried first: each refused message takes half a second."""
FIRST = 2
"""Added to a batch, gives an offset: a part of the first batch, -1, is at offset 0."""


class TopicWriter(SinkWriter):
    """Writes to one topic.

    Args:
        connector: the topic.
        id: of the sink, unique in the cluster.
        dataset: the name of the dataset, for readers.
    """

    isolates: ClassVar[bool] = True

    def __init__(self, connector: KafkaConnector, id: str, dataset: str) -> None:
        self._subject = f"the sink to topic '{connector.topic}'"
        self._topic = TransactionalTopic(settings(connector.cluster), connector.topic, f"umbel-{id}", self._subject)
        self._dataset, self._cluster = dataset, connector.cluster
        self._largest = 0
        self._is_shared = True

    def position(self) -> SinkPosition:
        offset, metadata = self._topic.position()
        topic = Cluster.of(self._cluster).topic(self._topic.topic, age=0.0)
        self.made = topic.id if topic else ""
        return SinkPosition(offset - FIRST, int(metadata or 0)) if offset >= 0 else SinkPosition()

    def write(self, changes: Sequence[RowChange], position: SinkPosition) -> None:
        self._write(self._shared(changes), position)

    def write_accepted(self, changes: Sequence[RowChange], position: SinkPosition, isolation: Isolation) -> None:
        sent = dict(enumerate(changes))
        refused = self._too_large(sent)
        numbers = sorted(sent)
        ranges, others = self._accepted([sent[each] for each in numbers])
        refused += [replace(each, number=numbers[each.number]) for each in others]
        isolation.settle(sorted(refused, key=lambda each: each.number), [each for part in ranges for each in part])
        self._topic.abort()
        self._write(ranges, position)

    def _too_large(self, changes: dict[int, RowChange]) -> list[Refusal]:
        """Remove the changes that the broker refuses one by one; return them.

        They are the largest ones, down to the first that it accepts.

        Raises:
            NoneAccepted: it refuses even the smallest of many.
        """
        sizes = {number: len(zlib.compress(self._messages(each)[0][1] or b"")) for number, each in changes.items()}
        order = sorted(changes, key=lambda number: -sizes[number])
        if len(order) > MANY and (error := self._refusal(changes[order[-1]])):
            raise none_accepted([Refusal(number, each, error) for number, each in changes.items()])
        found = list[Refusal]()
        for number in order:
            change = changes[number]
            error = self._refusal(change)
            if error is None:
                self._largest = sum(len(value or b"") for _, value in self._messages(change))
                break
            if change.alone is not None and self._refusal(change.alone) is None:
                changes[number] = change.alone
            else:
                found.append(Refusal(number, changes.pop(number), error))
        return found

    def _refusal(self, change: RowChange) -> RowsRefused | None:
        """Return the refusal of a change that is sent alone, None if it is accepted."""
        try:
            self._attempt([[change]])
        except RowsRefused as error:
            return error
        return None

    def _accepted(self, changes: Sequence[RowChange]) -> tuple[list[Sequence[RowChange]], list[Refusal]]:
        """Return changes in ranges whose messages the broker accepts together, and the refused ones."""
        if not changes:
            return [], []
        for ranges in ([changes], parts := self._parts(changes)):
            with suppress(RowsRefused):
                self._attempt(ranges)
                self._is_shared = ranges is not parts
                return ranges, []
        found, refused = divided(changes, lambda _, part: self._attempt([part]))
        return [part for _, part in sorted(found, key=lambda each: each[0])], refused

    def _shared(self, changes: Sequence[RowChange]) -> list[Sequence[RowChange]]:
        return [changes] if self._is_shared else self._parts(changes)

    def _parts(self, changes: Sequence[RowChange]) -> list[Sequence[RowChange]]:
        """Return changes in parts no larger than an accepted message, or of one change."""
        parts, size = list[list[RowChange]](), 0
        for each in changes:
            own = sum(len(value or b"") for _, value in self._messages(each))
            size = size + own if parts and size + own <= self._largest else 0
            if not size:
                parts.append([])
                size = own
            parts[-1].append(each)
        return list(parts)

    def _write(self, ranges: Sequence[Sequence[RowChange]], position: SinkPosition) -> None:
        with self._refusing():
            self._topic.write(lambda: self._send(ranges), position.batch + FIRST, str(position.rows))

    def _attempt(self, ranges: Sequence[Sequence[RowChange]]) -> None:
        """Send changes in a transaction that is aborted.

        Raises:
            RowsRefused: the broker refuses one.
        """
        with self._refusing():
            try:
                self._topic.attempt(lambda: self._send(ranges))
            except Transient:
                if self._topic.refused:
                    raise
                # librdkafka goes on behind the numbers of refused messages, which fails once
                self._topic.attempt(lambda: self._send(ranges))

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except Transient as error:
            if not self._topic.refused:
                raise
            raise RowsRefused(
                f"{self._subject}: {self._topic.refused}",
                hint="raise the topic's max.message.bytes, or leave such rows out in the dataset's pipeline",
            ) from error

    def close(self) -> None:
        self._topic.close()

    def _send(self, ranges: Sequence[Sequence[RowChange]]) -> None:
        """Send ranges of changes, each in messages that share no batch with another one's."""
        for part in ranges:
            for each in part:
                for key, value in self._messages(each):
                    self._topic.send(key, value)
            if len(ranges) > 1:
                self._topic.flush()

    def _messages(self, change: RowChange) -> list[tuple[bytes | None, bytes | None]]:
        now = time.time_ns() // 1_000_000
        source = {"connector": "umbel", "table": self._dataset, "ts_ms": -(-change.at // 1000), "ts_us": change.at}
        values = {"before": change.before, "after": change.after, "source": source, "op": change.op, "ts_ms": now}
        key = None if change.key is None else orjson.dumps(change.key)
        found: list[tuple[bytes | None, bytes | None]] = [(key, orjson.dumps(values))]
        if change.op == "d" and key is not None:
            found.append((key, None))  # lets compaction remove the key
        return found
