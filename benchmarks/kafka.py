"""Rows per second of umbel's reader of Kafka, beside librdkafka's consumer reading the same topic into nothing.

    python -m benchmarks.kafka [--rows 1000000]

Both run in one process and take turns; a broker is started for it. Printed are the medians and their ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.servers.kafka import Broker, running
from umbel.connectors import Kafka
from umbel.connectors.kafka.fetching import CONSUMER
from umbel.connectors.kafka.source import TopicSource
from umbel.types.dtypes import Datetime, Float, Int, Str

TOPIC, TURNS = "sales", 3
SCHEMA = {"uid": Int(), "amount": Float(), "country": Str(), "at": Datetime()}


def into_nothing(broker: Broker, rows: int) -> float:
    """Return the seconds that librdkafka's consumer takes for the topic."""
    from confluent_kafka import Consumer, TopicPartition

    began, found = time.perf_counter(), 0
    consumer = Consumer({**CONSUMER, "bootstrap.servers": broker.address, "enable.partition.eof": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    while found < rows:
        found += len(consumer.consume(20_000, 0.1))
    took = time.perf_counter() - began
    consumer.close()
    return took


def into_frames(reader: TopicSource, rows: int) -> float:
    """Return the seconds that umbel takes to plan the topic and to read it into frames, in a new process's state."""
    from umbel.connectors.kafka.fetching import FETCHERS

    FETCHERS.close()
    began, found, position = time.perf_counter(), 0, None
    while found < rows:
        splits, position = reader.plan(position, 128 << 20)
        for split, _ in splits:
            for batch in reader.open(split, SCHEMA, exact=True):
                assert not batch.raw.rejects.height
                found += batch.raw.frame.height
    return time.perf_counter() - began


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder, running(Path(folder) / "kafka") as broker:
        broker.create(TOPIC)
        fill(broker, rows)
        cluster: dict[str, Any] = {"bootstrap_servers": broker.address, "security_protocol": "PLAINTEXT"}
        reader = Kafka(name="k", sasl_mechanism="PLAIN", **cluster).topic(TOPIC).reader(Path())
        into_nothing(broker, rows)  # fills the page cache
        turns = [(into_nothing(broker, rows), into_frames(reader, rows)) for _ in range(TURNS)]
    nothing, frames = (rows / statistics.median(each) for each in zip(*turns, strict=True))
    print(f"consumed into nothing: {nothing:>10,.0f} rows/s")
    print(f"read into frames:      {frames:>10,.0f} rows/s, {frames / nothing:.2f} of it")


def fill(broker: Broker, rows: int) -> None:
    """Produce rows of about 75 bytes."""
    producer = broker.producer(**{"linger.ms": 50, "batch.size": 1 << 20, "compression.type": "lz4"})
    for n in range(rows):
        sale = {"uid": n % 5000, "amount": n / 8, "country": "NO", "at": 1_772_000_000 + n // 100}
        producer.produce(TOPIC, json.dumps(sale).encode())
        if n % 50_000 == 0:
            producer.flush()
    producer.flush()


if __name__ == "__main__":
    main()
