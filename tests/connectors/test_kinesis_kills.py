"""A worker that reads a stream is killed again and again, while shards split and merge: each record counts once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.stream_killing import Feed, row, run
from tests.seeds import chance_of_seed
from tests.servers.kinesis import ROLE, FakeKinesis, environment, running
from umbel.connectors import Kinesis, source
from umbel.datasets import dataset

__owner__ = "shop@example.com"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKinesis]:
    with running() as made:
        for name, value in environment(made).items():
            monkeypatch.setenv(name, value)
        yield made


def events(arn: str) -> Any:
    @source(Kinesis(name="shop", role_arn=ROLE).stream(arn, "trim_horizon", "json"), disorder="14d", cdc="append")
    @dataset
    class Events:
        n: int
        name: str
        at: datetime

    return Events


def killed(fake: FakeKinesis, folder: Path, rows: int, kills: int, chance: random.Random) -> None:
    """Run a stream of two shards, in which reads are throttled, empty, and shards change after each kill."""
    arn, fake.empty = fake.create("events", shards=2), 0.1

    def put(first: int, last: int) -> None:
        for n in range(first, last):
            fake.put("events", row(n), key=str(n))

    def disturb() -> None:
        fake.throttled = chance.randrange(4)
        with fake.lock:
            shards = sorted(fake.open("events"), key=lambda each: each.low)
            at = chance.randrange(len(shards) - 1)
            if len(shards) < 5 and chance.random() < 0.6:
                fake.split("events", shards[at].id)
            else:
                fake.merge("events", shards[at].id, shards[at + 1].id) if len(shards) > 2 else None

    run(folder, events(arn), Feed(put, rows, kills, disturb), chance)


def test_three_kills(fake: FakeKinesis, tmp_path: Path) -> None:
    killed(fake, tmp_path, 6_000, 3, chance_of_seed())


@pytest.mark.nightly
def test_forty_kills(fake: FakeKinesis, tmp_path: Path) -> None:
    killed(fake, tmp_path, 400_000, 40, chance_of_seed())
