"""Messages per second that umbel reads from Kinesis and Pub/Sub, beside their own client libraries.

    python -m benchmarks.message_streams [kinesis pubsub] [--rows 100000] [--turns 3]

The servers are the fakes of the tests, in this process: the ratios say what umbel costs beside the library, the rates nothing
about the real systems. The ways of reading take turns. Printed are the medians, and their ratios to the library, which reads
the same messages into nothing: messages staged on disk, and then read into typed columns.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.table_reading import opened, reader_of, report, staged, timed
from tests.servers import kinesis as shards
from tests.servers import pubsub as topics
from umbel.connectors import Kinesis, PubSub
from umbel.connectors.polling import stop_polling

Turn: TypeAlias = Callable[[Path], dict[str, float]]
"""Measures the ways of reading the same messages, in a folder; returns the seconds of each."""
START = datetime(2026, 1, 1, tzinfo=UTC)
SHARDS, AT_ONCE = 4, 1000


def row(n: int) -> dict[str, Any]:
    """Return a row of `orders`."""
    return {"id": n, "note": f"note {n}", "updated_at": (START + timedelta(seconds=n)).isoformat()}


def measured(connector: Any, read: Callable[[], None], folder: Path, rows: int) -> dict[str, float]:
    """Return the seconds of each way of reading some messages."""
    reader = reader_of(connector, folder)
    times = {"library": timed(read), "staged": staged(reader, rows)}
    stop_polling(folder)
    return {**times, "opened": opened(reader)}


@contextmanager
def kinesis(rows: int) -> Iterator[Turn]:
    """Run a fake of Kinesis with a stream of four shards."""
    with shards.running() as fake:
        os.environ.update(shards.environment(fake))
        arn = fake.create("orders", SHARDS)
        for n in range(rows):
            fake.put("orders", row(n), key=str(n))
        stream = Kinesis(name="s", role_arn=shards.ROLE).stream(arn, "trim_horizon", "json")

        def read() -> None:
            import boto3

            role = boto3.client("sts").assume_role(RoleArn=shards.ROLE, RoleSessionName="benchmark")["Credentials"]
            keys = {"aws_access_key_id": role["AccessKeyId"], "aws_secret_access_key": role["SecretAccessKey"]}
            client = boto3.client("kinesis", **keys, aws_session_token=role["SessionToken"])
            listed = client.list_shards(StreamARN=arn)["Shards"]
            for shard in listed:
                requested = {"ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
                at, behind = client.get_shard_iterator(StreamARN=arn, **requested)["ShardIterator"], 1
                while behind:
                    answer = client.get_records(ShardIterator=at, Limit=10_000)
                    at, behind = answer["NextShardIterator"], answer["MillisBehindLatest"]

        yield lambda folder: measured(stream, read, folder, rows)


@contextmanager
def pubsub(rows: int) -> Iterator[Turn]:
    """Run a fake of Pub/Sub; each turn has a topic of its own."""
    with topics.running() as fake:
        os.environ.update(topics.environment(fake))

        def turn(folder: Path) -> dict[str, float]:
            topic = f"orders-{folder.name}"
            fake.create(topic)
            project = PubSub(name="s", project_id=topics.PROJECT, service_account_key={})
            connector, known = project.topic(topic, "json"), len(fake.subscriptions)
            reader = reader_of(connector, folder)
            while len(fake.subscriptions) == known:
                reader.tend()
                time.sleep(0.01)
            stop_polling(folder)
            with pulled(topic, rows) as read:
                for first in range(0, rows, AT_ONCE):
                    fake.publish(topic, [row(n) for n in range(first, min(first + AT_ONCE, rows))])
                return measured(connector, read, folder, rows)

        yield turn


@contextmanager
def pulled(topic: str, rows: int) -> Iterator[Callable[[], None]]:
    """Make a subscription; yield a function that receives and acknowledges so many messages by Google's library."""
    from google.cloud.pubsub_v1 import SubscriberClient

    with SubscriberClient() as client:
        path = client.subscription_path(topics.PROJECT, f"{topic}-library")
        client.create_subscription(name=path, topic=client.topic_path(topics.PROJECT, topic))

        def read() -> None:
            found = list[None]()

            def received(message: Any) -> None:
                message.ack()
                found.append(None)

            streaming = client.subscribe(path, received)
            while len(found) < rows:
                time.sleep(0.005)
            streaming.cancel()
            streaming.result()

        yield read


SYSTEMS: dict[str, Callable[[int], AbstractContextManager[Turn]]] = {"kinesis": kinesis, "pubsub": pubsub}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("systems", nargs="*", choices=[*SYSTEMS, []])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    rows: int = arguments.rows
    for name in arguments.systems or SYSTEMS:
        with tempfile.TemporaryDirectory() as folder, SYSTEMS[name](rows) as turn:
            print(f"{name}:")
            report("messages/s", rows, "library", arguments.turns, lambda n, t=turn, f=folder: t(Path(f) / f"r{n}"))


if __name__ == "__main__":
    main()
