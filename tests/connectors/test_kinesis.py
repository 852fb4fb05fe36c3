"""Streams of a fake of Kinesis, read by boto3: each record once, in the order of its shards, and nothing missing is silent."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.shop_datasets import deployed, letters, process, until
from tests.deployed import wait_until
from tests.servers.kinesis import ROLE, FakeKinesis, environment, running
from umbel.connectors import Kinesis, source
from umbel.connectors.kinesis import at_timestamp, client
from umbel.connectors.polling import reader_state, stop_polling
from umbel.connectors.staging import Stage
from umbel.datasets import dataset, field
from umbel.errors import InvalidValue, NotSupported, PackageError, Transient

__owner__ = "shop@example.com"
SHARD = "shardId-000000000000"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKinesis]:
    with running() as made:
        for name, value in environment(made).items():
            monkeypatch.setenv(name, value)
        yield made


def events(arn: str, position: Any = "trim_horizon", role: str = ROLE, **how: Any) -> Any:
    @source(
        Kinesis(name="shop", role_arn=role).stream(arn, position, "json"), **{"disorder": "14d", "cdc": "append", **how}
    )
    @dataset
    class Events:
        n: int
        at: datetime

    return Events


def row(n: int) -> dict[str, Any]:
    return {"n": n, "at": (NOW + timedelta(seconds=n)).isoformat()}


def put(fake: FakeKinesis, first: int, last: int, name: str = "events", **how: Any) -> None:
    for n in range(first, last):
        fake.put(name, row(n), key=str(n), **how)


def numbers(made: Any) -> list[int]:
    return sorted(made.changes("Events")["n"].to_list())


def reasons(made: Any) -> list[str]:
    return [each.reason for each in letters(made)]


def stage_of(folder: Path) -> Stage:
    wait_until(lambda: list(folder.glob("umbel/staged/*")), lambda: "nothing was staged", 30)
    (found,) = folder.glob("umbel/staged/*")
    return Stage(found)


def test_records_of_all_shards_arrive(fake: FakeKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RECORDS", 15)
    arn = fake.create("events", shards=5)
    put(fake, 0, 1000)
    fake.empty = 0.2
    with deployed(tmp_path, events(arn)) as made:
        until(made, lambda: made.taken().get("Events") == 1000)
        put(fake, 1000, 1100)
        until(made, lambda: made.taken()["Events"] == 1100)
        assert numbers(made) == list(range(1100))
        assert letters(made) == []
        assert fake.exceeded == 0, "five reads a second for a shard are the limit"
        assert fake.tokens.requests == [ROLE]


def test_a_shard_with_more_backlog_than_another_is_not_late(
    fake: FakeKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RECORDS", 20)
    arn = fake.create("events", shards=2)
    large, small = (each.id for each in fake.open("events"))
    for shard, n in ((large, 0), (small, 1)):
        fake.put("events", row(n), shard=shard)
    with deployed(tmp_path, events(arn, disorder="1s")) as made:
        until(made, lambda: made.taken().get("Events") == 2)
        process(made, 0.5)
        stop_polling(tmp_path)  # an outage: one shard has three requests' worth of records, the other one a record
        for n in range(10, 70):
            fake.put("events", row(n), shard=large)
        fake.put("events", row(100), shard=small)
        until(made, lambda: made.taken()["Events"] == 63)
        assert letters(made) == []
        process(made, 0.5)
        fake.put("events", row(50), shard=large)
        until(made, lambda: letters(made))
        assert "is before the watermark" in reasons(made)[0]
        assert numbers(made) == [0, 1, *range(10, 70), 100]


def test_resharding_keeps_the_order(fake: FakeKinesis, tmp_path: Path) -> None:
    """The last row of a key wins by its place in the source: a child is read when its parents have been."""

    arn, version = fake.create("orders", shards=2), 0

    @source(Kinesis(name="shop", role_arn=ROLE).stream(arn, "trim_horizon", "json"), disorder="14d", cdc="upsert")
    @dataset(index=True)
    class Orders:
        id: int = field(key=True)
        version: int
        at: datetime

    def wave() -> None:
        nonlocal version
        version += 1
        for order in range(200):
            fake.put("orders", {"id": order, "version": version, "at": NOW.isoformat()}, key=str(order))

    wave()
    with deployed(tmp_path, Orders) as made:
        until(made, lambda: made.taken().get("Orders") == 200)
        for _ in range(3):  # all at once, before anything is read
            wave()
            low, high = (each.id for each in sorted(fake.open("orders"), key=lambda each: each.low)[:2])
            _, right = fake.split("orders", low)
            wave()
            fake.merge("orders", right, high)
            wave()
        until(made, lambda: made.taken()["Orders"] == 200 * version)
        rows = made.lookup("Orders", [{"id": each} for each in range(200)], [NOW + timedelta(days=1)] * 200)
        assert {each["version"] for each in rows} == {version}
        assert letters(made) == []
        assert fake.exceeded == 0


def test_positions(fake: FakeKinesis, tmp_path: Path) -> None:
    arn, now = fake.create("events", shards=3), time.time()
    put(fake, 0, 30, at=now - 7200)
    put(fake, 30, 60, at=now - 1800)
    hour_ago = datetime.fromtimestamp(now - 3600, UTC)
    with deployed(tmp_path / "at", events(arn, at_timestamp(hour_ago))) as made:
        until(made, lambda: made.taken().get("Events") == 30)
        assert numbers(made) == list(range(30, 60))
    with deployed(tmp_path / "latest", events(arn, "latest")) as made:
        process(made, 0.2)
        until(made, lambda: stage_of(tmp_path / "latest").state().get("loaded"))
        stop_polling(tmp_path / "latest")  # what comes while nobody reads is read later, also where nothing was yet
        put(fake, 60, 90)
        until(made, lambda: made.taken().get("Events") == 30)
        assert numbers(made) == list(range(60, 90))
    soon = datetime.fromtimestamp(now := time.time() + 3, UTC)
    put(fake, 90, 100)
    with deployed(tmp_path / "future", events(arn, at_timestamp(soon))) as made:
        process(made, 1.0)
        while time.time() < now:
            process(made, 0.1)
        put(fake, 100, 110)
        until(made, lambda: made.taken().get("Events") == 10)
        assert numbers(made) == list(range(100, 110))


def test_a_reader_that_stops_goes_on_where_it_was(fake: FakeKinesis, tmp_path: Path) -> None:
    arn = fake.create("events", shards=2)
    with deployed(tmp_path, events(arn)) as made:
        for step in range(5):
            put(fake, step * 100, step * 100 + 100)
            until(made, lambda: made.taken().get("Events", 0) == step * 100 + 100)  # noqa: B023
            stop_polling(tmp_path)
            if step == 2:
                (stage_of(tmp_path).folder / "state.json").write_text(json.dumps(_older(stage_of(tmp_path))))
        assert numbers(made) == list(range(500))
        assert letters(made) == []


def _older(stage: Stage) -> Any:
    """Return a state as it was before the last part: what a crash between the two leaves."""
    state, number = stage.state(), stage.numbers()[-1]
    before = next((stage.part(each).facts["shards"] for each in reversed(stage.numbers()[:-1])), {})
    shards = {shard: {"sequence": "", "arrived": 0.0, "reached": 0.0, "is_done": False} for shard in state["shards"]}
    for each in stage.numbers()[:-1]:
        shards |= stage.part(each).facts["shards"]
    return {**state, "shards": shards | before, "part": number - 1}


def test_records_deleted_before_they_were_read(fake: FakeKinesis, tmp_path: Path) -> None:
    arn = fake.create("events")
    put(fake, 0, 10)
    with deployed(tmp_path, events(arn)) as made:
        until(made, lambda: made.taken().get("Events") == 10)
        stop_polling(tmp_path)
        _earlier(stage_of(tmp_path), 90_000)  # the reader was away for 25 hours
        fake.streams["events"].shards[SHARD].records.clear()
        put(fake, 20, 30)
        until(made, lambda: made.taken()["Events"] == 21)
        assert numbers(made) == [*range(10), *range(20, 30)]
        (reason,) = reasons(made)
        assert "may have been deleted before they were read: the stream retains them for 24 h" in reason
        stop_polling(tmp_path)
        process(made, 1.5)
        assert len(letters(made)) == 1


def _earlier(stage: Stage, seconds: float) -> None:
    state = stage.state()
    for each in state["shards"].values():
        each["reached"] -= seconds
        each["arrived"] -= seconds if each["arrived"] else 0
    last = stage.last()
    stage.save({**state, "part": last.number if last else 0})


def test_an_idle_stream_has_lost_nothing(fake: FakeKinesis, tmp_path: Path) -> None:
    """The last record read is deleted by retention, and it was the last one there was."""
    arn = fake.create("events", shards=2)
    put(fake, 0, 10, at=time.time() - 80_000)
    with deployed(tmp_path, events(arn)) as made:
        until(made, lambda: made.taken().get("Events") == 10)
        until(made, lambda: stage_of(tmp_path).state().get("loaded"))
        stop_polling(tmp_path)
        state = stage_of(tmp_path).state()
        for each in state["shards"].values():
            each["arrived"] -= 10_000
        stage_of(tmp_path).save({**state, "part": stage_of(tmp_path).numbers()[-1]})
        for shard in fake.streams["events"].shards.values():
            shard.records.clear()
        put(fake, 10, 20)
        until(made, lambda: made.taken()["Events"] == 20)
        assert numbers(made) == list(range(20))
        assert letters(made) == []


def test_shards_that_were_deleted_before_they_were_read(fake: FakeKinesis, tmp_path: Path) -> None:
    arn = fake.create("events")
    put(fake, 0, 10)
    with deployed(tmp_path, events(arn)) as made:
        until(made, lambda: made.taken().get("Events") == 10)
        stop_polling(tmp_path)
        put(fake, 10, 20)
        left, right = fake.split("events", SHARD)
        put(fake, 20, 40)
        child = fake.merge("events", left, right)
        for shard in (SHARD, left, right):
            fake.remove("events", shard)
        put(fake, 40, 50)
        until(made, lambda: made.taken()["Events"] == 22)
        assert numbers(made) == [*range(10), *range(40, 50)]
        assert sorted(each.partition(", shard")[2].partition(": ")[0] for each in reasons(made)) == [
            "Id-000000000000",
            child.removeprefix("shard"),
        ]


def test_a_stream_that_is_deleted_and_created_again(fake: FakeKinesis, tmp_path: Path) -> None:
    arn = fake.create("events", shards=2)
    put(fake, 0, 10)
    with deployed(tmp_path, events(arn)) as made:
        until(made, lambda: made.taken().get("Events") == 10)
        fake.delete("events")
        until(made, lambda: any("there is no such stream" in each for each in reasons(made)))
        fake.create("events", shards=1)
        put(fake, 10, 20)
        until(made, lambda: made.taken()["Events"] == 22)
        assert numbers(made) == list(range(20))
        assert "deleted and created again" in reasons(made)[-1] + reasons(made)[0]
        stop_polling(tmp_path)
        fake.delete("events")  # nobody reads meanwhile
        fake.create("events", shards=3)
        put(fake, 20, 30)
        until(made, lambda: made.taken()["Events"] == 33)
        assert numbers(made) == list(range(30))


def test_a_source_whose_stream_is_changed(fake: FakeKinesis, tmp_path: Path) -> None:
    """The same dataset reads on from another stream, from the position that its source has."""
    one, two = fake.create("events"), fake.create("others", shards=2)
    put(fake, 0, 10)
    put(fake, 10, 20, "others", at=time.time() - 60)
    with deployed(tmp_path, events(one)) as made:
        until(made, lambda: made.taken().get("Events") == 10)
        made.commit([events(two, "latest")])
        until(made, lambda: stage_of(tmp_path).state()["stream"] == two)
        put(fake, 20, 30, "others")
        until(made, lambda: made.taken()["Events"] == 20)
        assert numbers(made) == [*range(10), *range(20, 30)]
        assert letters(made) == []


def test_limits_and_failures_are_waited_for(fake: FakeKinesis, tmp_path: Path) -> None:
    arn = fake.create("events", shards=2)
    put(fake, 0, 10)
    with deployed(tmp_path, events(arn)) as made:
        until(made, lambda: made.taken().get("Events") == 10)
        fake.throttled = 10
        put(fake, 10, 20)
        until(made, lambda: made.taken()["Events"] == 20)
        assert fake.throttled == 0
        fake.is_down = True
        put(fake, 20, 30)
        folder = stage_of(tmp_path).folder
        until(made, lambda: "does not answer" in reader_state(folder)[1])
        fake.is_down = False
        until(made, lambda: made.taken()["Events"] == 30)
        fake.lifetime = -1  # each iterator has expired when it is used
        put(fake, 30, 40)
        until(made, lambda: "cannot be read now" in reader_state(folder)[1])
        fake.lifetime = 300
        until(made, lambda: made.taken()["Events"] == 40)
        assert numbers(made) == list(range(40))
        assert letters(made) == []


def test_the_lag_is_that_of_the_stream(fake: FakeKinesis, tmp_path: Path) -> None:
    arn = fake.create("events")
    put(fake, 0, 10, at=time.time() - 500)
    fake.empty = 1.0
    with deployed(tmp_path, events(arn)) as made:
        process(made, 0.5)
        folder = stage_of(tmp_path).folder
        until(made, lambda: 500 <= (reader_state(folder)[0].seconds or 0) < 600)
        fake.empty = 0.0
        until(made, lambda: reader_state(folder)[0].seconds == 0)
        until(made, lambda: made.taken().get("Events") == 10)


def test_what_cannot_be_read_is_refused_at_commit(
    fake: FakeKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arn = fake.create("events")
    fake.forbidden = set()
    for made, reason in [
        (events("events"), r"no ARN of a stream(?s:.*)arn:aws:kinesis"),
        (events(arn.replace("events", "nothing")), r"there is no such stream(?s:.*)create it"),
        (events(arn, role=ROLE + "x"), r"role .* cannot be assumed: AccessDenied(?s:.*)trust policy"),
    ]:
        with pytest.raises(InvalidValue, match=reason), deployed(tmp_path, made):
            pass
    for action in ("DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"):
        fake.forbidden = {action}
        with (
            pytest.raises(InvalidValue, match=r"AccessDenied(?s:.*)allow the role kinesis:"),
            deployed(tmp_path, events(arn)),
        ):
            pass
    fake.forbidden = set()
    fake.is_down = True
    with pytest.raises(Transient, match="does not answer"), deployed(tmp_path, events(arn)):
        pass
    reference = Kinesis.get("shop").stream(arn, "latest", "json")
    with pytest.raises(NotSupported, match="registered elsewhere"):
        reference.reader_of(None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(PackageError, match=r"pip install 'umbel\[kinesis\]'"), deployed(tmp_path, events(arn)):
        pass
