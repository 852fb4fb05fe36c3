"""A topic as a sink: Debezium's envelopes, written in transactions.

The position is a committed offset of the consumer group `umbel-ID`, for partition 0 of the topic, sent with the transaction:
batch + 2 as the offset, and the rows of the next batch in its metadata. The transactional id is that of the sink, so that a new
writer ends the transactions of the one before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson

from umbel.connectors.kafka.clients import settings
from umbel.connectors.sinks import RowChange, SinkPosition, SinkWriter
from umbel.errors import Transient

if TYPE_CHECKING:
    from umbel.connectors.kafka import KafkaConnector

TIMEOUT = 15.0
"""Seconds that a request may take."""
DEADLINE = 60.0
"""Seconds that a transaction may take."""
PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # the one of Kafka's Java clients
    "queue.buffering.max.messages": 500_000,
    "transaction.timeout.ms": 60_000,
    "message.max.bytes": 64 << 20,  # the broker's limit applies
}
FIRST = 2
"""Added to a batch, gives an offset: the first batch is -1, and no offset is below 1."""


class TopicWriter(SinkWriter):
    """Writes to one topic.

    Args:
        connector: the topic.
        id: of the sink, unique in the cluster.
        dataset: the name of the dataset, for readers.
    """

    def __init__(self, connector: KafkaConnector, id: str, dataset: str) -> None:
        from confluent_kafka import Consumer, Producer

        options, self._group = settings(connector.cluster), f"umbel-{id}"
        self._topic, self._dataset = connector.topic, dataset
        self._lost, self._failures = list[str](), list[str]()
        events = {"error_cb": lambda error: self._lost.append(error.str())}
        self._producer = Producer({**options, **PRODUCER, **events, "transactional.id": self._group})
        reading = {"group.id": self._group, "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer = Consumer({**options, **reading})

    def position(self) -> SinkPosition:
        from confluent_kafka import TopicPartition

        with self._transient():
            self._producer.init_transactions(TIMEOUT)
            (found,) = self._consumer.committed([TopicPartition(self._topic, 0)], TIMEOUT)
        if found.error is not None:
            raise self._failed(found.error.str())
        return SinkPosition(found.offset - FIRST, int(found.metadata or 0)) if found.offset > 0 else SinkPosition()

    def write(self, changes: Sequence[RowChange], position: SinkPosition) -> None:
        from confluent_kafka import TopicPartition

        reached = TopicPartition(self._topic, 0, position.batch + FIRST, metadata=str(position.rows))
        self._producer.poll(0)
        if self._lost:
            raise self._failed(f"the connection was lost: {self._lost[-1]}")
        # librdkafka may wait for ever for a coordinator that was gone, whatever the timeout. Such a call is left behind: the
        # next writer fences its producer.
        failures, call = list[BaseException](), threading.Event()

        def run() -> None:
            try:
                self._transaction(changes, reached)
            except BaseException as error:  # noqa: BLE001  raised by the caller
                failures.append(error)
            call.set()

        threading.Thread(target=run, name="transaction", daemon=True).start()
        if not call.wait(DEADLINE):
            raise self._failed(f"a transaction did not end within {DEADLINE:.0f} seconds")
        if failures:
            raise failures[0]

    def _transaction(self, changes: Sequence[RowChange], reached: Any) -> None:
        with self._transient():
            self._producer.begin_transaction()
            for each in changes:
                self._produce(each)
            self._producer.send_offsets_to_transaction([reached], self._consumer.consumer_group_metadata(), TIMEOUT)
            self._producer.commit_transaction(TIMEOUT)

    def close(self) -> None:
        self._consumer.close()

    def _produce(self, change: RowChange) -> None:
        now = time.time_ns() // 1_000_000
        source = {"connector": "umbel", "table": self._dataset, "ts_ms": -(-change.at // 1000), "ts_us": change.at}
        values = {"before": change.before, "after": change.after, "source": source, "op": change.op, "ts_ms": now}
        key = None if change.key is None else orjson.dumps(change.key)
        self._send(key, orjson.dumps(values))
        if change.op == "d" and key is not None:
            self._send(key, None)  # lets compaction remove the key

    def _send(self, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failures.append(error.str())

    @contextmanager
    def _transient(self) -> Iterator[None]:
        """Turn a failure of the client into a transient one.

        Another writer is made then, and the topic says what it has.
        """
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            details = f" ({self._failures[0]})" if self._failures else ""
            raise self._failed(f"{error.args[0].str()}{details}") from error

    def _failed(self, reason: str) -> Transient:
        hint = "check the broker, and the permissions to write transactions and to commit offsets"
        return Transient(f"the sink to topic '{self._topic}' failed: {reason}", hint=hint)
