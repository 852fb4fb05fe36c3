"""Consumers of Kafka that are retained, and those that go from partition to partition."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from umbel.connectors.kafka import fetching
from umbel.connectors.kafka.fetching import CONSUMER, IDLE, Fetchers

confluent_kafka = pytest.importorskip("confluent_kafka")

TOPIC = "orders", "id"


class Consumer:
    """One without a broker."""

    made: list[Consumer]

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.assigned, self.closed = settings, list[tuple[int, int]](), threading.Event()
        Consumer.made.append(self)

    def assign(self, partitions: list[Any]) -> None:
        self.assigned += [(each.partition, each.offset) for each in partitions]

    def close(self) -> None:
        self.closed.set()

    @property
    def waits(self) -> int:
        return int(self.settings["fetch.wait.max.ms"])


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Consumer]:
    Consumer.made = []
    monkeypatch.setattr(confluent_kafka, "Consumer", Consumer)
    monkeypatch.setattr(fetching, "UNUSED_ROVING", 0.05)
    return Consumer.made


def read(fetchers: Fetchers, partition: int, offset: int, *, is_sample: bool = False) -> None:
    """Read a record of a partition."""
    fetcher = fetchers.take({"bootstrap.servers": "k"}, TOPIC, partition, offset, is_sample=is_sample)
    assert (fetcher.partition, fetcher.next) == (partition, offset)
    fetcher.next = offset + 1
    fetchers.put(fetcher)


def test_many_partitions_are_read_by_a_consumer_that_does_not_wait(
    made: list[Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each assignment waited for the answer to the request for the partition before: 37 ms for each partition."""
    monkeypatch.setattr(fetching, "UNUSED_ROVING", 60.0)
    fetchers = Fetchers()
    for offset in range(3):
        for partition in range(40):
            read(fetchers, partition, offset)
    own, roving = made[: IDLE // 2], made[IDLE // 2 :]
    assert [each.waits for each in own] == [CONSUMER["fetch.wait.max.ms"]] * (IDLE // 2)
    assert [each.assigned for each in own] == [[(partition, 0)] for partition in range(IDLE // 2)]
    assert [each.waits for each in roving] == [1]
    read(fetchers, 0, 3, is_sample=True)
    assert made[-1].settings["max.partition.fetch.bytes"] < CONSUMER["max.partition.fetch.bytes"]
    fetchers.close()
    assert all(each.closed.is_set() for each in made)


def test_a_roving_consumer_that_is_not_used_is_closed(made: list[Consumer]) -> None:
    fetchers = Fetchers()
    for _ in range(2):
        for partition in range(IDLE // 2 + 1):
            read(fetchers, partition, 0)
        assert made[-1].waits == 1
        assert made[-1].closed.wait(60)
    assert len(made) == IDLE // 2 + 2
    assert not any(each.closed.is_set() for each in made[: IDLE // 2])


def test_a_partition_that_is_read_no_more_leaves_its_consumer_to_another(
    made: list[Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetchers = Fetchers()
    for partition in range(IDLE // 2):
        read(fetchers, partition, 0)
    now = time.monotonic()
    monkeypatch.setattr(fetching.time, "monotonic", lambda: now + fetching.UNUSED + 1)
    read(fetchers, 50, 7)
    assert [each.assigned for each in made] == [[(0, 0), (50, 7)], [(1, 0)], [(2, 0)], [(3, 0)]]
