"""Transactions on a topic that carry the writer's own position.

The position is a committed offset of the writer's consumer group, for partition 0 of the topic, with metadata. The
transactional id is that of the writer, so that a new one ends the transactions of the one before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from umbel.errors import Transient

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
USUAL_BATCH = 1_000_000
"""Bytes of a batch by default, which is below the limit that topics have by default."""
REPORTED = 0.5
"""Seconds to wait for reports of the records of a failed transaction, at the most."""
OF_RECORDS = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD"})
"""Errors that concern the records of a batch, not the topic."""


class TransactionalTopic:
    """Writes to one topic, in transactions.

    Args:
        options: the settings of librdkafka by which the cluster is reached.
        topic: its name.
        id: the transactional id, and that of the consumer group; unique in the cluster, and the same after a restart.
        subject: the description of the writer, for messages.
        batch_bytes: bytes of the records that are sent as one batch, unless one has more; the topic's limit is of batches.
    """

    def __init__(
        self, options: Mapping[str, Any], topic: str, id: str, subject: str, batch_bytes: int = USUAL_BATCH
    ) -> None:
        from confluent_kafka import Consumer, Producer

        self.topic, self._subject = topic, subject
        self._lost, self._failures = list[str](), list[Any]()
        events = {"error_cb": lambda error: self._lost.append(error.str())}
        batches = {"batch.size": min(batch_bytes, USUAL_BATCH)}
        self._producer = Producer({**options, **PRODUCER, **batches, **events, "transactional.id": id})
        reading = {"group.id": id, "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer = Consumer({**options, **reading})

    def position(self) -> tuple[int, str]:
        """Return the offset and the metadata of the last transaction, a negative offset for none.

        Raises:
            Transient: the cluster does not answer.
        """
        from confluent_kafka import TopicPartition

        with self._transient():
            self._producer.init_transactions(TIMEOUT)
            (found,) = self._consumer.committed([TopicPartition(self.topic, 0)], TIMEOUT)
        if found.error is not None:
            raise self._failed(found.error.str())
        return int(found.offset), str(found.metadata or "")

    def examine(self) -> None:
        """Commit a position in a transaction that is aborted.

        A missing permission is told that way: without it, reading a position waits. The client's request for the offsets of a
        group is no other way: librdkafka 2.16 ends the process in it when the broker goes away.

        Raises:
            Transient: the cluster does not answer, or refuses.
        """
        from confluent_kafka import KafkaException, TopicPartition

        with self._transient():
            self._producer.init_transactions(TIMEOUT)
            self._begin()
            group = self._consumer.consumer_group_metadata()
            try:
                self._producer.send_offsets_to_transaction([TopicPartition(self.topic, 0, 0)], group, TIMEOUT)
            finally:
                with suppress(KafkaException):
                    self._producer.abort_transaction(TIMEOUT)

    def write(self, send: Callable[[], None], offset: int, metadata: str) -> None:
        """Run one transaction.

        Args:
            send: calls `send` of this object for each record.
            offset: the new position, at least 0.
            metadata: what belongs to it.

        Raises:
            Transient: it failed; another writer is to be made, and asked for its position.
        """
        from confluent_kafka import TopicPartition

        reached = TopicPartition(self.topic, 0, offset, metadata=metadata)
        self._producer.poll(0)
        if self._lost:
            raise self._failed(f"the connection was lost: {self._lost[-1]}")
        self._bounded(lambda: self._transaction(send, reached))

    def attempt(self, send: Callable[[], None]) -> None:
        """Send records in a transaction that is aborted.

        Raises:
            Transient: the broker does not take them; `refused` says whether it refuses them.
        """
        self._bounded(lambda: self._aborted(send))

    def flush(self) -> None:
        """Send the records that were added: they share no batch with later ones."""
        if self._producer.flush(TIMEOUT):
            raise self._failed("the broker does not answer")

    def _bounded(self, transaction: Callable[[], None]) -> None:
        """Run a transaction, for some time.

        Raises:
            Transient: it failed.
        """
        # librdkafka may wait for ever for a coordinator that was gone, whatever the timeout. Such a call is left behind: the
        # next writer fences its producer.
        failures, call = list[BaseException](), threading.Event()

        def run() -> None:
            try:
                transaction()
            except BaseException as error:  # noqa: BLE001  raised by the caller
                failures.append(error)
            call.set()

        threading.Thread(target=run, name="transaction", daemon=True).start()
        if not call.wait(DEADLINE):
            raise self._failed(f"a transaction did not end within {DEADLINE:.0f} seconds")
        if failures:
            raise failures[0]

    def _transaction(self, send: Callable[[], None], reached: Any) -> None:
        from confluent_kafka import KafkaException

        with self._transient():
            self._begin()
            send()
            group = self._consumer.consumer_group_metadata()
            try:
                self._producer.send_offsets_to_transaction([reached], group, TIMEOUT)
                self._producer.commit_transaction(TIMEOUT)
            except KafkaException:
                self._producer.poll(REPORTED)  # the refusal of a record, which is the reason, may not be reported yet
                raise

    def _begin(self) -> None:
        self._failures = []  # a new one: the former transaction's may still be reported
        self._producer.begin_transaction()

    def _aborted(self, send: Callable[[], None]) -> None:
        with self._transient():
            self.abort()
            self._begin()
            try:
                send()
                self.flush()
            finally:
                self.abort()
        if self._failures:
            raise self._failed(self._failures[0].str())

    def abort(self) -> None:
        """End the transaction in progress, if there is one."""
        from confluent_kafka import KafkaException

        try:
            self._producer.abort_transaction(TIMEOUT)
        except KafkaException as error:
            if error.args[0].name() != "_STATE":  # there is none
                raise

    def send(self, key: bytes | None, value: bytes | None, headers: Mapping[str, bytes] | None = None) -> None:
        """Add a record to the transaction."""
        while True:
            try:
                self._producer.produce(
                    self.topic, value, key, on_delivery=partial(_note, self._failures), headers=headers
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def close(self) -> None:
        """Release the connection."""
        self._consumer.close()

    @property
    def refused(self) -> str:
        """The refusal of a record of the last transaction, empty if there is none."""
        return next((error.str() for error in self._failures if error.name() in OF_RECORDS), "")

    @contextmanager
    def _transient(self) -> Iterator[None]:
        """Turn a failure of the client into a transient one.

        Another writer is made then, and the topic says what it has.
        """
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            failed = error.args[0]
            self._failures.append(failed)  # a record may be larger than the client's own limit
            reason = "the broker does not answer" if failed.name() == "_TIMED_OUT" else failed.str()
            details = "" if self._failures[0] is failed else f" ({self._failures[0].str()})"
            raise self._failed(f"{reason}{details}") from error

    def _failed(self, reason: str) -> Transient:
        hint = "check the broker, and the permissions to write transactions and to commit offsets"
        return Transient(f"{self._subject} failed: {reason}", hint=hint)


def _note(failures: list[Any], error: Any, _: Any) -> None:
    if error is not None:
        failures.append(error)
