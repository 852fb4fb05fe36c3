"""Topics of a fake of Pub/Sub, read by Google's own client: each message once, acknowledged when it is on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.shop_datasets import deployed, letters, process, until
from tests.deployed import wait_until
from tests.servers.pubsub import PROJECT, FakePubSub, environment, running
from umbel.connectors import PubSub, source, staged_source
from umbel.connectors.polling import Poller, reader_state, stop_polling
from umbel.connectors.pubsub import stream
from umbel.connectors.pubsub.stream import MessageStream
from umbel.connectors.staging import Stage
from umbel.datasets import dataset
from umbel.errors import Transient
from umbel.runtime.maintenance import retire

__owner__ = "shop@example.com"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePubSub]:
    with running() as made:
        for name, value in environment(made).items():
            monkeypatch.setenv(name, value)
        made.create("events")
        yield made


def events(topic: str = "events", key: Any = None, **how: Any) -> Any:
    project = PubSub(name="shop", project_id=PROJECT, service_account_key=key or {})

    @source(project.topic(topic, "json"), **{"disorder": "14d", "cdc": "append", **how})
    @dataset
    class Events:
        n: int
        at: datetime

    return Events


def rows(first: int, last: int) -> list[Any]:
    return [{"n": n, "at": (NOW + timedelta(seconds=n)).isoformat()} for n in range(first, last)]


def numbers(made: Any) -> list[int]:
    return sorted(made.changes("Events")["n"].to_list())


def reasons(made: Any) -> list[str]:
    return [each.reason for each in letters(made)]


def stage_of(folder: Path) -> Stage:
    (found,) = folder.glob("umbel/staged/*")
    return Stage(found)


def subscribed(made: Any, fake: FakePubSub) -> None:
    """Wait until there is a subscription: earlier messages do not come."""
    until(made, lambda: fake.subscriptions)


def test_messages_arrive_and_are_acknowledged(fake: FakePubSub, tmp_path: Path) -> None:
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        sent = fake.publish("events", rows(0, 1000))
        until(made, lambda: made.taken().get("Events") == 1000)
        sent += fake.publish("events", rows(1000, 1100))
        until(made, lambda: made.taken()["Events"] == 1100)
        assert numbers(made) == list(range(1100))
        wait_until(lambda: fake.waiting() == 0, fake.waiting, 20)
        assert sorted(fake.acknowledged) == sorted(sent)
        assert letters(made) == []
        (name,) = fake.subscriptions
        assert name.startswith(f"projects/{PROJECT}/subscriptions/umbel-events-")
        assert not fake.subscriptions[name].settings.expiration_policy.ttl


def test_messages_that_are_delivered_again_count_once(fake: FakePubSub, tmp_path: Path) -> None:
    fake.longest, fake.forgotten, fake.doubled = 0.5, 0.3, 0.2
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        for step in range(10):
            fake.publish("events", rows(step * 100, step * 100 + 100))
            process(made, 0.3)
            if step % 3 == 2:
                stop_polling(tmp_path)
        fake.forgotten = 0.0
        until(made, lambda: fake.waiting() == 0)
        until(made, lambda: len(numbers(made)) >= 1000)
        process(made, 0.5)
        assert numbers(made) == list(range(1000))
        assert letters(made) == []
        counts = made.deployment.catalog.counts()
        assert counts["Events", "duplicate_messages"] > 0


def test_nothing_is_acknowledged_before_it_is_on_disk(
    fake: FakePubSub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Stage.append
    seen = list[int]()

    def checked(stage: Stage, *arguments: Any) -> Any:
        seen.append(len(fake.acknowledged))
        if len(seen) in {2, 3}:
            raise OSError("no space left")
        return append(stage, *arguments)

    monkeypatch.setattr(Stage, "append", checked)
    fake.longest = 1.0
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        fake.publish("events", rows(0, 10))
        until(made, lambda: made.taken().get("Events") == 10)
        wait_until(lambda: len(fake.acknowledged) == 10, lambda: fake.acknowledged)
        fake.publish("events", rows(10, 20))
        until(made, lambda: made.taken()["Events"] == 20)
        assert numbers(made) == list(range(20))
    assert seen[:4] == [0, 10, 10, 10]


def test_a_crash_between_staging_and_noting_the_ids(
    fake: FakePubSub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from umbel.connectors.pubsub.seen import SeenIds

    add, failures = SeenIds.add, [True, True]

    def failing(seen: SeenIds, ids: Any, part: int, elapsed: float) -> None:
        if elapsed and failures and failures.pop():
            raise OSError("the process dies here")
        add(seen, ids, part, elapsed)

    monkeypatch.setattr(SeenIds, "add", failing)
    fake.longest = 0.5
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        fake.publish("events", rows(0, 10))
        until(made, lambda: made.taken().get("Events") == 10 and fake.waiting() == 0)
        assert failures == [True] or failures == []
        process(made, 1.0)
        assert numbers(made) == list(range(10))


def test_ids_that_are_damaged_or_missing_are_reported(fake: FakePubSub, tmp_path: Path) -> None:
    fake.longest = 0.5
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        for step, harm in enumerate(["cut", "garbage", "missing"]):
            fake.publish("events", rows(step * 2000, step * 2000 + 2000))
            until(made, lambda: made.taken().get("Events", 0) >= step * 2001 + 2000 and fake.waiting() == 0)  # noqa: B023
            stop_polling(tmp_path)
            file = stage_of(tmp_path).folder / "seen" / "data.mdb"
            if harm == "cut":
                file.write_bytes(file.read_bytes()[:16384])
            elif harm == "garbage":
                file.write_bytes(b"garbage" * 5000)
            else:
                file.unlink()
                file.parent.rmdir()
            fake.forgotten = 1.0  # they come again: the last parts have their ids
            until(made, lambda: sum("ids of messages were lost" in each for each in reasons(made)) == step + 1)  # noqa: B023
            fake.forgotten = 0.0
        assert numbers(made) == list(range(6000))


def overwritten(tables: bytes, page: int = 4096) -> bytes:
    """Return tables whose ids are overwritten, but not what tells of the tables."""
    pages = [tables[at : at + page] for at in range(0, len(tables), page)]
    return b"".join(pages[:2] + [each if b"clock" in each else b"garbage!" * (page // 8) for each in pages[2:]])


def test_ids_that_prove_to_be_damaged_are_begun_anew(fake: FakePubSub, tmp_path: Path) -> None:
    fake.longest = 0.5
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        fake.publish("events", rows(0, 1000))
        until(made, lambda: made.taken().get("Events") == 1000 and fake.waiting() == 0)
        stop_polling(tmp_path)
        file = stage_of(tmp_path).folder / "seen" / "data.mdb"
        file.write_bytes(overwritten(file.read_bytes()))
        fake.publish("events", rows(1000, 1010))
        until(made, lambda: made.taken()["Events"] >= 1011, within=120)
        assert sum("ids of messages were lost" in each for each in reasons(made)) == 1
        assert numbers(made) == list(range(1010))


def test_a_batch_that_is_slow(fake: FakePubSub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that wait to be staged are delivered to nobody else, for their deadline is extended."""
    monkeypatch.setattr(stream, "DEADLINE", 3)
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        fake.publish("events", rows(0, 10))
        until(made, lambda: made.taken().get("Events") == 10 and fake.waiting() == 0)
        extend, waits = MessageStream.extend, list[float]()
        monkeypatch.setattr(MessageStream, "extend", lambda self: (waits.append(time.time()), extend(self)))
        monkeypatch.setattr(staged_source, "AHEAD_BYTES", 0)
        until(made, lambda: waits)
        fake.publish("events", rows(10, 500))
        process(made, 7)
        assert fake.extended.count(3) > 3
        assert made.taken()["Events"] == 10
        monkeypatch.setattr(staged_source, "AHEAD_BYTES", 1 << 30)
        until(made, lambda: made.taken()["Events"] == 500)
        counts = made.deployment.catalog.counts()
        assert not counts.get(("Events", "duplicate_messages"))


def test_only_so_many_messages_wait(fake: FakePubSub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "OUTSTANDING", 50)
    monkeypatch.setattr(staged_source, "AHEAD_BYTES", 0)
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        fake.publish("events", rows(0, 500))
        process(made, 1.0)
        (found,) = fake.subscriptions.values()
        assert len(found.leased) == 50
        monkeypatch.setattr(staged_source, "AHEAD_BYTES", 1 << 30)
        until(made, lambda: made.taken().get("Events") == 500)


def test_messages_that_cannot_be_read_are_dead_letters(fake: FakePubSub, tmp_path: Path) -> None:
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        bad = fake.publish("events", [b"{broken", b"", b"\xff", b"[1]", {"n": "text", "at": "x"}])
        fake.publish("events", rows(0, 2))
        until(made, lambda: made.taken().get("Events") == 7)
        assert numbers(made) == [0, 1]
        found = [str(each) for each in letters(made)]
        assert all(any(f"message {each}" in letter for letter in found) for each in bad), found
        wait_until(lambda: fake.waiting() == 0, fake.waiting)


def test_a_subscription_and_a_topic_that_are_deleted(fake: FakePubSub, tmp_path: Path) -> None:
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        fake.publish("events", rows(0, 10))
        until(made, lambda: made.taken().get("Events") == 10 and fake.waiting() == 0)
        fake.subscriptions.clear()
        subscribed(made, fake)
        fake.publish("events", rows(10, 20))
        until(made, lambda: made.taken()["Events"] == 21)
        assert "was deleted; messages that were published since" in reasons(made)[0]
        stop_polling(tmp_path)
        fake.delete("events")
        until(made, lambda: any("there is no such topic" in each for each in reasons(made)))
        fake.create("events")
        until(made, lambda: [each for each in fake.subscriptions.values() if each.settings.topic != "_deleted-topic_"])
        fake.publish("events", rows(20, 30))
        until(made, lambda: len(numbers(made)) == 30)
        assert numbers(made) == list(range(30))
        assert any("the topic was deleted" in each for each in reasons(made))


def test_a_topic_that_retains_messages_is_read_from_its_beginning(fake: FakePubSub, tmp_path: Path) -> None:
    fake.create("old", retention=3600)
    fake.publish("old", rows(0, 10), at=datetime.now(UTC) - timedelta(hours=2))
    fake.publish("old", rows(10, 20))
    with deployed(tmp_path, events("old")) as made:
        until(made, lambda: made.taken().get("Events") == 10)
        until(made, lambda: fake.waiting() == 0)
        fake.subscriptions.clear()  # what the topic retains is delivered again, and recognised
        fake.publish("old", rows(20, 30))
        until(made, lambda: len(numbers(made)) == 20)
        assert numbers(made) == list(range(10, 30))


def test_a_pause_longer_than_the_retention_is_reported(fake: FakePubSub, tmp_path: Path) -> None:
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        until(made, lambda: stage_of(tmp_path).state().get("loaded"))
        stop_polling(tmp_path)
        stage = stage_of(tmp_path)
        stage.save({**stage.state(), "pulled_at": time.time() - 8 * 86_400})
        until(made, lambda: "older ones than the subscription retains (168 h) are lost" in "".join(reasons(made)))
        stop_polling(tmp_path)
        process(made, 1.0)
        assert len(letters(made)) == 1


def test_the_subscription_of_a_source_that_is_gone_is_deleted(fake: FakePubSub, tmp_path: Path) -> None:
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        until(made, lambda: stage_of(tmp_path).state().get("loaded"))
        stop_polling(tmp_path)
        place = made.deployment
        retire(place, place.graph(place.catalog.latest()))
        assert len(fake.subscriptions) == 1
        made.commit([])
        retire(place, place.graph(place.catalog.latest()))
        assert fake.subscriptions == {}
        retire(place, place.graph(place.catalog.latest()))
        made.commit([events()])
        subscribed(made, fake)
        fake.publish("events", rows(0, 10))
        until(made, lambda: made.taken().get("Events") == 10)
        assert letters(made) == []


def test_a_source_whose_topic_is_changed(fake: FakePubSub, tmp_path: Path) -> None:
    """The same dataset reads on from another topic; ids are those of a topic."""
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        fake.publish("events", rows(0, 10))
        until(made, lambda: made.taken().get("Events") == 10 and fake.waiting() == 0)
        fake.create("others", retention=60)
        fake._number -= 10
        made.commit([events("others")])
        fake.publish("others", rows(10, 20))
        until(made, lambda: made.taken()["Events"] == 20)
        assert numbers(made) == list(range(20))
        (path,) = fake.subscriptions
        assert fake.subscriptions[path].settings.topic.endswith("others")
        assert letters(made) == []


def test_a_service_that_is_away_for_a_while(fake: FakePubSub, tmp_path: Path) -> None:
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        fake.publish("events", rows(0, 10))
        until(made, lambda: made.taken().get("Events") == 10)
        fake.is_away = True
        fake.publish("events", rows(10, 20))
        folder = stage_of(tmp_path).folder
        until(made, lambda: "does not answer" in reader_state(folder)[1])
        fake.is_away = False
        until(made, lambda: made.taken()["Events"] == 20)
        assert letters(made) == []
    fake.is_away = True
    with pytest.raises(Transient, match="does not answer"), deployed(tmp_path / "other", events()):
        pass


def test_the_lag_is_the_age_of_the_messages(fake: FakePubSub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with deployed(tmp_path, events()) as made:
        subscribed(made, fake)
        folder = stage_of(tmp_path).folder
        until(made, lambda: reader_state(folder)[0].seconds == 0)
        lags = list[float | None]()
        progressed = Poller.progressed
        monkeypatch.setattr(
            Poller, "progressed", lambda each, lag: (lags.append(lag.seconds), progressed(each, lag))[1]
        )
        fake.publish("events", rows(0, 10), at=datetime.now(UTC) - timedelta(minutes=5))
        until(made, lambda: any(300 <= (each or 0) < 400 for each in lags))
        until(made, lambda: reader_state(folder)[0].seconds == 0)
