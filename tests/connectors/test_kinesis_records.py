"""Records of Kinesis: broken ones, those with several messages, and those that are erased."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from hashlib import md5
from pathlib import Path

import polars as pl
import pytest

from tests.connectors.shop_datasets import deployed, letters, until
from tests.connectors.test_kinesis import NOW, SHARD, events, numbers, row, stage_of
from tests.servers.kinesis import ROLE, FakeKinesis, environment, running
from umbel.catalog.purges import Purges
from umbel.connectors import Kinesis, source
from umbel.connectors.polling import stop_polling
from umbel.datasets import dataset, field
from umbel.runtime.erasures import erase

__owner__ = "shop@example.com"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKinesis]:
    with running() as made:
        for name, value in environment(made).items():
            monkeypatch.setenv(name, value)
        yield made


def test_records_that_cannot_be_read_are_dead_letters(fake: FakeKinesis, tmp_path: Path) -> None:
    arn = fake.create("events")
    fake.put("events", row(1))
    bad = [fake.put("events", each) for each in (b"{broken", b"", b"\xff\xfe", b"[1]", {"n": "text", "at": "x"})]
    fake.put("events", row(2))
    with deployed(tmp_path, events(arn)) as made:
        until(made, lambda: made.taken().get("Events") == 7)
        assert numbers(made) == [1, 2]
        found = [str(each) for each in letters(made)]
        assert all(any(f"{SHARD}@{number}" in each for each in found) for number in bad), found


def aggregated(keys: list[str], rows: list[bytes], explicit: str = "") -> bytes:
    """Return a record as the Kinesis Producer Library makes it, by its published format."""

    def part(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2]) + _varint(len(content)) + content

    body = b"".join(part(1, key.encode()) for key in keys) + (part(2, explicit.encode()) if explicit else b"")
    for number, content in enumerate(rows):
        chosen = b"\x08" + _varint(number % len(keys)) + (b"\x10\x00" if explicit else b"")
        body += part(3, chosen + part(3, content))
    return b"\xf3\x89\x9a\xc2" + body + md5(body).digest()


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def test_aggregated_records(fake: FakeKinesis, tmp_path: Path) -> None:
    arn = fake.create("events")
    texts = [json.dumps(row(n)).encode() for n in range(100)]
    fake.put("events", aggregated(["a", "b"], texts[:50]))
    fake.put("events", aggregated(["a"], [*texts[50:60], b"{broken"], explicit="12"))
    fake.put("events", aggregated([], []))
    cut = fake.put("events", aggregated(["a"], texts[60:61])[:-1])
    fake.put("events", texts[60])
    left, right = fake.split("events", SHARD)
    keys = {
        side: next(k for k in map(str, range(99)) if int(md5(k.encode()).hexdigest(), 16) >> 127 == side)
        for side in (0, 1)
    }
    foreign = fake.put("events", aggregated([keys[0], keys[1]], texts[61:63]), shard=left)
    fake.put("events", aggregated([keys[1]], texts[62:63]), shard=right)
    with deployed(tmp_path, events(arn)) as made:
        until(made, lambda: made.taken().get("Events") == 66)
        assert numbers(made) == list(range(63))
        found = sorted(str(each) for each in letters(made))
        assert len(found) == 3
        assert sum(f"{left}@{foreign}#1" in each and "another shard" in each for each in found) == 1
        assert sum(f"{SHARD}@{cut}" in each for each in found) == 1


def test_erased_rows_are_gone_from_staged_records(fake: FakeKinesis, tmp_path: Path) -> None:
    arn = fake.create("people")

    @source(Kinesis(name="shop", role_arn=ROLE).stream(arn, "trim_horizon", "json"), disorder="14d", cdc="upsert")
    @dataset(index=True)
    class People:
        email: str = field(key=True, erase_key=True)
        note: str
        at: datetime

    gone, stays = "gone-8731@example.com", "stays@example.com"
    for email in (gone, stays):
        fake.put("people", {"email": email, "note": f"note of {email}", "at": NOW.isoformat()})
    fake.put("people", {"email": gone, "note": "rejected", "at": "no time"})
    with deployed(tmp_path, People) as made:
        until(made, lambda: made.taken().get("People") == 3)
        place = made.deployment
        purges = Purges(place.catalog)
        purges.request(revision := erase(place, "main", "People", {"email": pl.Series([gone])}))
        fake.put("people", {"email": "another@example.com", "note": "", "at": NOW.isoformat()})
        until(made, lambda: purges.progress.revision == revision)
        until(made, lambda: made.taken()["People"] == 4)  # the last event is staged after the erasure, or before it
        stop_polling(tmp_path)
        stage = stage_of(tmp_path)
        texts = [text for number in stage.numbers() for text in stage.read(number)["_message"].to_list()]
        assert [text is None for text in texts] == [True, False, True, False]
        assert stays.encode() in texts[1]
        assert made.taken()["People"] == 4
