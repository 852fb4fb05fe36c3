"""A worker that reads a topic is killed again and again, and acknowledgements are lost: each message counts once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.stream_killing import Feed, row, run
from tests.seeds import chance_of_seed
from tests.servers.pubsub import PROJECT, FakePubSub, environment, running
from umbel.connectors import PubSub, source
from umbel.datasets import dataset

__owner__ = "shop@example.com"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePubSub]:
    with running() as made:
        for name, value in environment(made).items():
            monkeypatch.setenv(name, value)
        yield made


def events() -> Any:
    project = PubSub(name="shop", project_id=PROJECT, service_account_key={})

    @source(project.topic("events", "json"), disorder="14d", cdc="append")
    @dataset
    class Events:
        n: int
        name: str
        at: datetime

    return Events


def killed(fake: FakePubSub, folder: Path, rows: int, kills: int, chance: random.Random) -> None:
    """Run a topic that retains messages, as a subscription is made only when the first worker reads."""
    fake.create("events", retention=3600)
    fake.longest, fake.forgotten, fake.doubled = 2.0, 0.05, 0.05

    def put(first: int, last: int) -> None:
        fake.publish("events", [row(n) for n in range(first, last)])

    run(folder, events(), Feed(put, rows, kills), chance)


def test_five_kills(fake: FakePubSub, tmp_path: Path) -> None:
    killed(fake, tmp_path, 10_000, 5, chance_of_seed())


@pytest.mark.nightly
def test_forty_kills(fake: FakePubSub, tmp_path: Path) -> None:
    killed(fake, tmp_path, 400_000, 40, chance_of_seed())
