"""A topic as a source, read from a real broker: positions, gaps, transactions, deletions, poison."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import PATIENCE, wait_until
from tests.servers.kafka import PASSWORD, USER, Broker
from tests.unit.connectors.reading import Read, read, read_until
from umbel.connectors import Kafka
from umbel.connectors.credentials import provide_vault
from umbel.connectors.kafka import fetching, offset_ranges, open_transactions, source
from umbel.connectors.kafka.offset_ranges import LOST, SKIPPED, TOMBSTONES
from umbel.connectors.kafka.record_sizes import GUESS
from umbel.connectors.kafka.source import TopicSource
from umbel.definitions.secret import Secret
from umbel.errors import InvalidValue, NotSupported, Transient
from umbel.types.dtypes import Int, Str

SCHEMA = {"n": Int()}
names = (f"t{number}" for number in itertools.count())


def kafka(broker: Broker, **options: Any) -> Kafka:
    plain = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "PLAIN", "bootstrap_servers": broker.address}
    return Kafka(name="k", **{**plain, **options})


def row(n: object) -> bytes:
    return json.dumps({"n": n}).encode()


@pytest.fixture
def topic(broker: Broker) -> Iterator[Callable[..., TopicSource]]:
    """Makes a topic, and returns its reading side."""

    def made(partitions: int = 1, **config: str) -> TopicSource:
        name = next(names)
        broker.create(name, partitions, **config)
        return kafka(broker).topic(name).reader(Path())

    yield made
    fetching.FETCHERS.close()


def all_of(found: Read) -> list[int]:
    return [values[0] for values in found.values()]


def test_rows_are_read_once_and_new_ones_as_they_come(broker: Broker, topic: Callable[..., TopicSource]) -> None:
    reader = topic(3)
    for part in range(3):
        broker.produce(reader.connector.topic, map(row, range(part * 10, part * 10 + 5)), part)
    found = read(reader, SCHEMA)
    assert all_of(found) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24]
    broker.produce(reader.connector.topic, [row(15)], 1)
    assert read(reader, SCHEMA, into=found).rows[1 << 44 | 5] == {"n": 15}
    assert len(found.rows) == 16
    assert (found.dead, found.locations(reader)) == ({}, found.places)


def test_a_topic_that_does_not_exist_is_waited_for(broker: Broker) -> None:
    name = next(names)
    reader = kafka(broker).topic(name).reader(Path())
    with pytest.raises(Transient, match=f"topic '{name}': there is no such topic"):
        reader.plan(None, 1000)
    broker.create(name)
    broker.produce(name, [row(1)])
    wait_until(lambda: source.Cluster.of(reader.connector.cluster).topic(name, 0.0), lambda: name)
    assert all_of(read(reader, SCHEMA)) == [1]


def test_a_plan_keeps_to_its_budget_and_a_partition_is_cut_into_splits(
    broker: Broker, topic: Callable[..., TopicSource]
) -> None:
    reader = replace(topic(2), split_bytes=20_000)
    for part in range(2):
        broker.produce(reader.connector.topic, map(row, range(5000)), part)
    splits, position = reader.plan(None, 80_000)
    assert len(splits) > 3
    assert 40_000 < sum(size for _, size in splits) <= 90_000
    rows = sum(split["end"] - split["begin"] for split, _ in splits)
    assert 1000 < rows < 3000  # the records are about 40 bytes long
    assert (reader.measure(None).rows, reader.measure(position).rows) == (10_000, 10_000 - rows)
    assert all_of(read(reader, SCHEMA)) == [*range(5000)] * 2
    assert len(read(reader, SCHEMA, into=Read(position=position)).rows) == 10_000 - rows


def test_a_plan_keeps_to_its_budget_where_later_records_are_larger(
    broker: Broker, topic: Callable[..., TopicSource]
) -> None:
    reader = topic()
    sizes = [20_000] * 100 + [10] * 3000 + [20_000] * 1000
    broker.produce(reader.connector.topic, (b"x" * size for size in sizes))
    position, planned = None, list[int]()
    while sum(planned) < len(sizes):
        found, position = reader.plan(position, 400_000)
        ends = [(split["begin"], split["end"]) for split, _ in found]
        assert sum(sum(sizes[begin:end]) for begin, end in ends) <= 500 * 20_000
        planned.append(sum(end - begin for begin, end in ends))
    assert len(planned) < 80  # not a few at a time where they are small


def test_at_least_one_record_is_planned(broker: Broker, topic: Callable[..., TopicSource]) -> None:
    reader = topic()
    broker.produce(reader.connector.topic, [row(1), row(2)])
    (split,), _ = reader.plan(None, 1)
    assert split[0]["end"] == 1


def test_a_split_opened_again_has_the_same_rows(broker: Broker, topic: Callable[..., TopicSource]) -> None:
    reader = topic()
    name = reader.connector.topic
    broker.produce(name, map(row, range(10)))
    broker.transact(name, [row(10)], commit=False)
    broker.transact(name, [row(11), row("x")], commit=True)
    splits, _ = reader.plan(None, 1 << 20)
    opened = [
        [
            (batch.numbers(batch.raw.frame.with_row_index()["index"]).to_list(), batch.raw.frame.rows())
            for split, _ in splits
            for batch in reader.open(split, SCHEMA, exact=True)
        ]
        for _ in range(3)
    ]
    assert opened[0] == opened[1] == opened[2]


def test_aborted_records_are_not_read_and_are_no_loss(broker: Broker, topic: Callable[..., TopicSource]) -> None:
    reader = topic()
    name, found = reader.connector.topic, Read()
    for n in range(6):
        broker.transact(name, [row(n), row(n + 100)], commit=n % 2 == 0)
        found = read(reader, SCHEMA, into=found)
    wait_until(lambda: read(reader, SCHEMA, into=found).position["next"]["0"][0] == 18, lambda: found)
    assert all_of(found) == [0, 100, 2, 102, 4, 104]
    assert list(found.rows) == [0, 1, 6, 7, 12, 13]
    assert not found.dead
    assert found.counts[SKIPPED] == 18 - 6
    assert found.counts[LOST] == 0


def test_records_of_an_open_transaction_wait_for_its_end(
    broker: Broker, topic: Callable[..., TopicSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = topic()
    name = reader.connector.topic
    producer = broker.producer(**{"transactional.id": f"open-{name}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, row(1))
    producer.flush(30)
    broker.produce(name, [row(2)])
    found = read(reader, SCHEMA)
    assert not found.rows
    assert reader.trouble == ""
    monkeypatch.setattr(open_transactions, "LONG", 0.0)
    assert "a transaction has been open" in reader.trouble
    assert "partition 0 from offset 0 on; end its producer" in reader.trouble
    producer.commit_transaction(30)
    wait_until(lambda: all_of(read(reader, SCHEMA, into=found)) == [1, 2], lambda: found)
    assert reader.trouble == ""


def test_what_is_no_row_is_a_dead_letter_with_its_offset(broker: Broker, topic: Callable[..., TopicSource]) -> None:
    reader = topic(2)
    name = reader.connector.topic
    values = [row(1), b"{broken", None, b"", b"[1]", row("two"), b'{"n":\n 3}', b"\xff\xfe", row(4)]
    broker.produce(name, values, partition=1)
    found = read(reader, SCHEMA)
    assert all_of(found) == [1, 3, 4]
    reasons = {where: (reason, raw) for where, reason, raw in found.dead.values()}
    assert list(reasons) == [f"{name}[1]@{offset}" for offset in (1, 2, 3, 4, 5, 7)]
    assert reasons[f"{name}[1]@1"][0].startswith("broken JSON")
    assert reasons[f"{name}[1]@1"][1] == b"{broken"
    assert reasons[f"{name}[1]@2"] == ("the record has no value (a tombstone)", b"")
    assert reasons[f"{name}[1]@5"] == ("n: expected int, got 'two' (str)", row("two"))
    assert found.counts[TOMBSTONES] == 1


def test_a_row_does_not_depend_on_its_neighbours(broker: Broker, topic: Callable[..., TopicSource]) -> None:
    reader, schema = topic(), {"n": Int(), "s": Str()}
    values = [json.dumps({"n": n, "s": f"s{n}"}).encode() for n in range(3000)]
    values[1500] = b'{"n": "x", "s": "y"}'
    values[1501] = b"\n"
    values[1502] = b'{"n": 2, "s": "a"}\n{"n": 3, "s": "b"}'
    broker.produce(reader.connector.topic, values)
    found = read(reader, schema)
    assert sorted(found.dead) == [1500, 1501, 1502]
    assert sorted(found.rows) == [n for n in range(3000) if n not in found.dead]


def test_new_partitions_are_read_from_their_beginning(
    broker: Broker, topic: Callable[..., TopicSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = topic()
    name = reader.connector.topic
    broker.produce(name, [row(1)])
    found = read(reader, SCHEMA)
    broker.add_partitions(name, 3)
    produced_again(broker, name, [row(2)], 2)
    read_rows(reader, found, 2, monkeypatch)
    assert all_of(found) == [1, 2]


def produced_again(broker: Broker, name: str, values: list[bytes], partition: int) -> None:
    """Produce to a partition that clients may not know yet."""
    from confluent_kafka import KafkaException

    def is_done() -> bool:
        try:
            broker.produce(name, values, partition)
        except KafkaException:
            return False
        return True

    wait_until(is_done, lambda: name)


def read_rows(reader: TopicSource, found: Read, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read until there are so many; partitions are resolved for each time."""
    known = source.Cluster.of(reader.connector.cluster).topic
    monkeypatch.setattr(source.Cluster, "topic", lambda _, name, age=0.0: known(name, 0.0))
    read_until(reader, SCHEMA, found, lambda: len(found.rows) >= rows, PATIENCE)


def test_records_deleted_before_they_were_planned_are_reported(
    broker: Broker, topic: Callable[..., TopicSource]
) -> None:
    reader = topic()
    name = reader.connector.topic
    broker.produce(name, map(row, range(10)))
    _, position = reader.plan(None, 4 * GUESS)
    broker.delete_records(name, {0: 7})
    found = read(reader, SCHEMA, into=Read(position=position))
    assert found.dead == {
        4: (
            f"{name}[0]@4",
            f"3 records from offset 4 to 6 are missing: {offset_ranges.DELETED}",
            json.dumps({"topic": name, "partition": 0, "begin": 4, "end": 7}).encode(),
        )
    }
    assert sorted(found.rows) == [7, 8, 9]
    assert found.counts[LOST] == 3


def test_what_was_deleted_before_the_source_began_is_no_loss(broker: Broker, topic: Callable[..., TopicSource]) -> None:
    reader = topic()
    broker.produce(reader.connector.topic, map(row, range(10)))
    broker.delete_records(reader.connector.topic, {0: 7})
    found = read(reader, SCHEMA)
    assert found.rows == {0: {"n": 7}, 1: {"n": 8}, 2: {"n": 9}}  # numbers begin with the first row there is
    assert (found.dead, found.locations(reader)) == ({}, found.places)


@pytest.mark.parametrize("before", [6, 10])
def test_records_deleted_after_they_were_planned_are_reported(
    broker: Broker, topic: Callable[..., TopicSource], before: int
) -> None:
    reader = topic()
    name = reader.connector.topic
    broker.produce(name, map(row, range(10)))
    (split,), _ = reader.plan(None, 1 << 20)
    broker.delete_records(name, {0: before})
    lost, *others = reader.open(split[0], SCHEMA, exact=True)
    assert (
        lost.raw.rejects["reason"][0]
        == f"{before} records from offset 0 to {before - 1} are missing: {offset_ranges.DELETED}"
    )
    assert lost.counts[LOST] == before
    assert [value for batch in others for (value,) in batch.raw.frame.rows()] == [*range(before, 10)]


def test_a_topic_created_again_is_read_from_its_beginning(
    broker: Broker, topic: Callable[..., TopicSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = topic(2)
    name = reader.connector.topic
    broker.produce(name, map(row, range(3)), 1)
    found = read(reader, SCHEMA)
    (unread,), _ = read_and_plan(broker, reader, found)
    broker.delete(name)
    broker.create(name, 2)
    broker.produce(name, map(row, range(10, 14)), 1)
    read_rows(reader, found, 7, monkeypatch)
    assert all_of(found) == [0, 1, 2, 10, 11, 12, 13]
    assert found.reasons() == [offset_ranges.RECREATED]
    assert found.locations(reader) == found.places
    (report,) = reader.open(unread[0], SCHEMA, exact=True)
    assert "2 records from offset 3 to 4 are missing: the topic was deleted" in report.raw.rejects["reason"][0]


def read_and_plan(broker: Broker, reader: TopicSource, found: Read) -> Any:
    broker.produce(reader.connector.topic, map(row, range(100, 102)), 1)
    return reader.plan(found.position, 1 << 20)


def test_a_deleted_topic_is_reported_once_it_has_been_missing_for_a_while(
    broker: Broker, topic: Callable[..., TopicSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "DELETED_FOR", 0.5)
    reader = topic()
    broker.produce(reader.connector.topic, map(row, range(3)))
    (split,), _ = reader.plan(None, 1 << 20)
    broker.delete(reader.connector.topic)
    cluster = source.Cluster.of(reader.connector.cluster)
    wait_until(lambda: cluster.topic(reader.connector.topic, 0.0) is None, lambda: reader)
    (report,) = reader.open(split[0], SCHEMA, exact=True)
    assert "3 records from offset 0 to 2 are missing: the topic was deleted" in report.raw.rejects["reason"][0]


def test_compacted_records_are_counted(broker: Broker, topic: Callable[..., TopicSource]) -> None:
    config = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_ms": "100"}
    reader = topic(1, **config, max_compaction_lag_ms="100")
    name = reader.connector.topic
    produced, left = list[bytes](), 0

    def is_compacted() -> bool:
        nonlocal left
        produced.extend(row(len(produced)) for _ in range(5))
        broker.produce(name, [(b"key", value) for value in produced[-5:]])  # the active segment is not compacted
        left = len(broker.consume(name))
        return left < len(produced)

    wait_until(is_compacted, lambda: left)
    found = read(reader, SCHEMA)
    assert all_of(found)[-1] == len(produced) - 1
    assert len(found.rows) + found.counts[SKIPPED] == len(produced)
    assert len(found.rows) <= left
    assert not found.dead


def test_a_broker_that_is_down_is_an_error_to_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source.Cluster, "offsets", None)
    dead = Kafka(name="k", bootstrap_servers="127.0.0.1:1", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
    with pytest.raises(Transient, match=r"Kafka at 127\.0\.0\.1:1 does not answer"):
        dead.topic("t").reader(Path()).plan(None, 1000)


def test_a_user_and_a_secret_password(broker: Broker, topic: Callable[..., TopicSource]) -> None:
    name = topic().connector.topic
    broker.produce(name, [row(1)])
    broker.grant("TOPIC", name, "DESCRIBE", "READ")
    resolved = []

    class Vault:
        def get(self, name: str) -> str:
            resolved.append(name)
            return json.dumps({"login": {"password": PASSWORD}})

    provide_vault(Vault())
    secret = Secret(arn="kafka-login")["login"]["password"]
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": USER, "sasl_plain_password": secret}
    reader = kafka(broker, bootstrap_servers=broker.sasl_address, **login).topic(name).reader(Path())
    assert not resolved  # secrets are read at use
    splits, position = reader.plan(None, 1000)
    assert all_of(read(reader, SCHEMA)) == [1]
    assert set(resolved) == {"kafka-login"}
    assert PASSWORD not in repr((splits, position, reader))


def test_a_topic_without_permission_is_an_error_to_retry(broker: Broker, topic: Callable[..., TopicSource]) -> None:
    name = topic().connector.topic
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    reader = kafka(broker, bootstrap_servers=broker.sasl_address, **login).topic(name).reader(Path())
    with pytest.raises(Transient, match=r"(?i)authori[sz]ation failed"):
        reader.plan(None, 1000)


def test_a_wrong_password_is_an_error_to_retry_that_does_not_have_it(
    broker: Broker, topic: Callable[..., TopicSource]
) -> None:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": USER, "sasl_plain_password": "wr0ng"}
    reader = kafka(broker, bootstrap_servers=broker.sasl_address, **login).topic("t").reader(Path())
    with pytest.raises(Transient, match=r"(?i)authentication failed") as report:
        reader.plan(None, 1000)
    assert "wr0ng" not in str(report.value)


def test_options_reach_the_client_and_cannot_change_what_reading_depends_on(broker: Broker) -> None:
    with pytest.raises(InvalidValue, match=r"'isolation\.level'"):
        kafka(broker, options={"isolation.level": "read_uncommitted"})
    reader = kafka(broker, options={"socket.timeout.ms": "no number"}).topic("t").reader(Path())
    with pytest.raises(Exception, match=r"socket\.timeout\.ms"):
        reader.plan(None, 1000)


def test_a_secret_elsewhere_is_refused_when_it_is_committed(broker: Broker) -> None:
    secret = Secret(arn="arn:aws:ssm:eu-west-1:123456789012:parameter/kafka")
    with pytest.raises(InvalidValue, match="no ARN of a secret in AWS"):
        kafka(broker, sasl_plain_password=secret).topic("t").reader(Path())
    with pytest.raises(NotSupported, match="Kafka 'console' is registered elsewhere"):
        Kafka.get("console").topic("t").reader(Path())
