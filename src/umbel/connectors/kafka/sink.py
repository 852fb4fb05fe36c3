"""A topic as a sink: Debezium's envelopes, written in transactions.

The offset of the position is batch + 2, and its metadata the rows of the next batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import orjson

from umbel.connectors.kafka.clients import settings
from umbel.connectors.kafka.transactions import TransactionalTopic
from umbel.connectors.sinks import RowChange, SinkPosition, SinkWriter

if TYPE_CHECKING:
    from umbel.connectors.kafka import KafkaConnector

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
        subject = f"the sink to topic '{connector.topic}'"
        self._topic = TransactionalTopic(settings(connector.cluster), connector.topic, f"umbel-{id}", subject)
        self._dataset = dataset

    def position(self) -> SinkPosition:
        offset, metadata = self._topic.position()
        return SinkPosition(offset - FIRST, int(metadata or 0)) if offset > 0 else SinkPosition()

    def write(self, changes: Sequence[RowChange], position: SinkPosition) -> None:
        def send() -> None:
            for each in changes:
                self._send(each)

        self._topic.write(send, position.batch + FIRST, str(position.rows))

    def close(self) -> None:
        self._topic.close()

    def _send(self, change: RowChange) -> None:
        now = time.time_ns() // 1_000_000
        source = {"connector": "umbel", "table": self._dataset, "ts_ms": -(-change.at // 1000), "ts_us": change.at}
        values = {"before": change.before, "after": change.after, "source": source, "op": change.op, "ts_ms": now}
        key = None if change.key is None else orjson.dumps(change.key)
        self._topic.send(key, orjson.dumps(values))
        if change.op == "d" and key is not None:
            self._topic.send(key, None)  # lets compaction remove the key
