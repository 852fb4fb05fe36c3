"""Partitions that have fewer records than before: a broker that has lost its disk, a topic made again with fewer partitions."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.kafka import Broker, started_or_missing
from tests.unit.connectors.reading import Read, read, read_until
from umbel.connectors import Kafka
from umbel.connectors.kafka import fetching, offset_ranges, source
from umbel.connectors.kafka.offset_ranges import LOST
from umbel.connectors.kafka.source import TopicSource
from umbel.types.dtypes import Int

SCHEMA = {"n": Int()}


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that loses partitions."""
    yield from started_or_missing(tmp_path_factory.mktemp("fragile"))
    fetching.FETCHERS.close()


def reading(broker: Broker, topic: str, partitions: int = 1) -> TopicSource:
    broker.create(topic, partitions)
    options = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "PLAIN", "bootstrap_servers": broker.address}
    return Kafka(name="k", **options).topic(topic).reader(Path())


def produce(broker: Broker, topic: str, numbers: range, partition: int = 0) -> None:
    broker.produce(topic, [json.dumps({"n": n}).encode() for n in numbers], partition)


def lose(broker: Broker, topic: str) -> None:
    """Restart a broker without the records of partition 0 of a topic, whose id remains."""
    broker.stop()
    shutil.rmtree(broker.folder / "data" / f"{topic}-0")
    broker.start()


def numbers(found: Read) -> list[int]:
    return [row["n"] for _, row in sorted(found.rows.items())]


def test_a_partition_that_lost_its_records_is_reported_and_read_on(
    fragile: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new records have offsets that were read before: they were skipped up to the old end, without a word."""
    monkeypatch.setattr(source, "SHORT_FOR", 1.0)
    reader = reading(fragile, "lost")
    produce(fragile, "lost", range(100))
    found = read(reader, SCHEMA)
    lose(fragile, "lost")
    read_until(reader, SCHEMA, found, lambda: bool(found.dead), within=60)
    assert found.reasons() == [offset_ranges.CUT]
    assert found.counts[LOST] == 1
    produce(fragile, "lost", range(1000, 1150))
    read_until(reader, SCHEMA, found, lambda: len(found.rows) >= 250, within=60)
    assert numbers(found) == [*range(100), *range(1000, 1150)]
    assert found.locations(reader) == found.places
    assert len(found.dead) == 1


def test_an_end_that_goes_back_for_a_moment_is_none(fragile: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "SHORT_FOR", 0.2)
    reader = reading(fragile, "moment")
    produce(fragile, "moment", range(5))
    found = read(reader, SCHEMA)
    offsets, short = source.Cluster.offsets, True
    monkeypatch.setattr(source.Cluster, "offsets", lambda *args: {0: (0, 3)} if short else offsets(*args))
    for _ in range(2):  # the second time it is seen for the first time again
        short = True
        read(reader, SCHEMA, into=found)
        short = False
        time.sleep(0.3)
        read(reader, SCHEMA, into=found)
    assert (numbers(found), found.dead) == ([*range(5)], {})


def test_records_lost_between_plan_and_reading_hold_nothing_up(
    fragile: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker has the first ones of the range: the batch waited for the others for ever."""
    monkeypatch.setattr(fetching, "PATIENCE", 1.0)
    reader = reading(fragile, "planned")
    produce(fragile, "planned", range(100))
    (planned,), _ = reader.plan(None, 1 << 20)
    lose(fragile, "planned")
    produce(fragile, "planned", range(1000, 1060))
    *batches, lost = reader.open(planned[0], SCHEMA, exact=True)
    assert [n for batch in batches for (n,) in batch.raw.frame.rows()] == [*range(1000, 1060)]
    assert lost.raw.rejects["reason"].to_list() == [
        "40 records from offset 60 to 99 are missing: the partition ends at offset 60: the broker has lost them"
    ]
    assert lost.counts[LOST] == 40


def test_partitions_that_a_new_topic_gets_later_are_read_from_their_beginning(
    fragile: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the old topic had an offset, and so many records of the new one were skipped."""
    monkeypatch.setattr(source.Cluster.topic, "__defaults__", (0.0,))
    reader = reading(fragile, "fewer", 2)
    for partition in (0, 1):
        produce(fragile, "fewer", range(partition * 10, partition * 10 + 10), partition)
    found = read(reader, SCHEMA)
    fragile.delete("fewer")
    fragile.create("fewer", 1)
    produce(fragile, "fewer", range(100, 105))
    read_until(reader, SCHEMA, found, lambda: len(found.rows) >= 25, within=60)
    fragile.add_partitions("fewer", 2)
    produce(fragile, "fewer", range(200, 215), 1)
    read_until(reader, SCHEMA, found, lambda: len(found.rows) >= 40, within=60)
    assert numbers(found) == [*range(10), *range(100, 105), *range(10, 20), *range(200, 215)]
    assert found.reasons() == [offset_ranges.RECREATED]
