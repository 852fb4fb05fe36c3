"""A collector that forwards to Kafka: each event once for readers of committed records, whatever is killed."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collecting import CollectorProcess, stored
from tests.deployed import wait_until
from tests.servers.kafka import Broker, started_or_missing
from umbel.log.collected import log_of
from umbel.log.readers import positions


@pytest.fixture
def stoppable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that the test kills and starts."""
    yield from started_or_missing(tmp_path_factory.mktemp("collected"))


def values(broker: Broker, topic: str) -> list[int]:
    return [json.loads(each.value())["n"] for each in broker.consume(topic)]


def test_events_arrive_once_and_in_order_in_the_topic_of_their_stream(broker: Broker, tmp_path: Path) -> None:
    broker.create("collected.clicks")
    broker.create("collected.orders")
    collector = CollectorProcess(tmp_path, "--to", f"kafka://{broker.address}/collected.{{stream}}")
    collector.wait()
    collector.post([{"n": 1}, {"n": 2, "text": "line\nbreak"}])
    collector.post(b'{"n":\n3}')
    collector.post({"n": 7}, "orders")
    wait_until(lambda: len(broker.consume("collected.clicks")) == 3, lambda: collector.said)
    wait_until(lambda: values(broker, "collected.orders") == [7], lambda: collector.said)
    messages = broker.consume("collected.clicks")
    assert [json.loads(each.value()) for each in messages] == stored(collector.directory)
    assert messages[2].value() == b'{"n": 3}'
    assert messages[0].headers() == [("umbel-stream", b"clicks")]
    wait_until(lambda: collector.metric("umbel_collect_backlog_rows") == 0, lambda: collector.said)
    assert collector.stop() == 0


def test_events_that_kafka_does_not_take_become_dead_letters(broker: Broker, tmp_path: Path) -> None:
    broker.create("small", max_message_bytes="20000")
    collector = CollectorProcess(tmp_path, "--to", f"kafka://{broker.address}/small")
    collector.wait()
    collector.post([{"n": 1}, {"n": 2, "text": "x" * 30_000}, {"n": 3}])
    wait_until(lambda: values(broker, "small") == [1, 3], lambda: collector.said)
    (letter,) = stored(collector.directory, dead=True)
    assert letter["index"] == 1
    assert "too large for Kafka" in letter["reason"]
    assert collector.stop() == 0


def test_events_that_are_too_large_only_together_are_forwarded(broker: Broker, tmp_path: Path) -> None:
    broker.create("small_batches", max_message_bytes="20000")
    collector = CollectorProcess(tmp_path, "--to", f"kafka://{broker.address}/small_batches")
    collector.wait()
    collector.post([{"n": n, "text": random.randbytes(4000).hex()} for n in range(30)])
    wait_until(lambda: values(broker, "small_batches") == [*range(30)], lambda: collector.said)
    assert stored(collector.directory, dead=True) == []
    assert collector.stop() == 0


def test_each_event_that_kafka_does_not_take_is_a_dead_letter_once_if_it_is_tried_again(
    broker: Broker, tmp_path: Path
) -> None:
    large = "x" * 1_048_000
    collector = CollectorProcess(tmp_path, "--to", f"kafka://{broker.address}/made_later")
    collector.wait()
    collector.post([{"n": 1}, {"n": 2, "text": large}])
    wait_until(lambda: "it is tried again" in collector.said, lambda: collector.said)
    collector.post([{"n": 3, "text": large}, {"n": 4}])
    broker.create("made_later")
    wait_until(lambda: values(broker, "made_later") == [1, 4], lambda: collector.said)
    assert [each["index"] for each in stored(collector.directory, dead=True)] == [1, 2]
    assert collector.stop() == 0


@pytest.mark.parametrize("turns", [2, pytest.param(8, marks=pytest.mark.nightly)])
def test_kafka_down_killed_and_back_and_the_collector_killed(stoppable: Broker, tmp_path: Path, turns: int) -> None:
    stoppable.create("events")
    generator, sent = random.Random(), 0
    collector = CollectorProcess(tmp_path, "--to", f"kafka://{stoppable.address}/events", "--processes", "1")
    collector.wait()

    def send(requests: int) -> None:
        nonlocal sent
        for _ in range(requests):
            count = generator.choice((1, 20))
            found = collector.post([{"n": sent + n} for n in range(count)])
            assert found.status_code == 200
            sent += count

    for turn in range(turns):
        send(100)
        if turn % 2:
            stoppable.kill()
            send(100)  # accepted, on disk
            collector.kill()
            stoppable.start()
        else:
            time.sleep(generator.random() / 3)  # somewhere in a transaction
            collector.kill()
        collector.begin()
        collector.wait()
    send(10)
    wait_until(lambda: len(stoppable.consume("events")) >= sent, lambda: collector.said)
    assert Counter(values(stoppable, "events")) == Counter(range(sent))
    assert values(stoppable, "events") == list(range(sent))
    log = log_of(collector.directory, "clicks")
    wait_until(lambda: positions(log)["kafka"].position.row == sent, lambda: positions(log))
    assert collector.stop() == 0


def test_a_stop_forwards_what_is_left(broker: Broker, tmp_path: Path) -> None:
    broker.create("left")
    collector = CollectorProcess(tmp_path, "--to", f"kafka://{broker.address}/left")
    collector.wait()
    for n in range(300):
        assert collector.post({"n": n}).status_code == 200
    assert collector.stop() == 0
    assert values(broker, "left") == list(range(300))


def test_a_signal_for_all_of_its_processes_forwards_what_is_left(broker: Broker, tmp_path: Path) -> None:
    """Ctrl-C is such a signal, and systemd sends one: the process that forwards ended first."""
    broker.create("of_group")
    collector = CollectorProcess(tmp_path, "--to", f"kafka://{broker.address}/of_group")
    collector.wait()
    assert collector.post({"n": 0}).status_code == 200
    wait_until(lambda: values(broker, "of_group") == [0], lambda: collector.said)
    for n in range(1, 300):
        assert collector.post({"n": n}).status_code == 200
    for each in collector.family():
        each.terminate()
    assert collector.stop() == 0
    assert values(broker, "of_group") == list(range(300))
    assert "not all events" not in collector.said


def test_a_stop_before_kafka_was_reached_forwards_what_came(broker: Broker, tmp_path: Path) -> None:
    broker.create("soon")
    collector = CollectorProcess(tmp_path, "--to", f"kafka://{broker.address}/soon")
    collector.wait()
    assert collector.post({"n": 0}).status_code == 200
    assert collector.stop() == 0
    assert values(broker, "soon") == [0]


def test_a_stop_without_kafka_waits_for_its_answer_alone(stoppable: Broker, tmp_path: Path) -> None:
    """It took three quarters of a minute, the streams one after the other, for nothing."""
    for stream in ("clicks", "orders"):
        stoppable.create(f"away.{stream}")
    collector = CollectorProcess(tmp_path, "--to", f"kafka://{stoppable.address}/away.{{stream}}")
    collector.wait()
    stoppable.kill()
    for stream in ("clicks", "orders"):
        assert collector.post({"n": 1}, stream).status_code == 200
    assert collector.stop() == 0
    assert f"not all events were forwarded: Kafka at {stoppable.address} does not answer" in collector.said
    stoppable.start()
    collector.begin()
    collector.wait()
    for stream in ("clicks", "orders"):
        wait_until(lambda name=f"away.{stream}": values(stoppable, name) == [1], lambda: collector.said)
    assert collector.stop() == 0


def test_a_missing_topic_is_reported_and_waited_for(stoppable: Broker, tmp_path: Path) -> None:
    collector = CollectorProcess(tmp_path, "--to", f"kafka://{stoppable.address}/later")
    collector.wait()
    assert collector.post({"n": 1}).status_code == 200
    wait_until(lambda: "it is tried again" in collector.said, lambda: collector.said)
    stoppable.create("later")
    wait_until(lambda: values(stoppable, "later") == [1], lambda: collector.said)
    assert collector.stop() == 0
