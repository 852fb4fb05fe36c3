"""The worker and the server of S3 are killed again and again; in the end the dataset is what the objects are."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.away import NOW, drain_after_death, drain_until, note, values, warnings
from tests.connectors.s3_shop import Place, clicks, deployed, lines
from tests.connectors.test_postgres_kills import Worker
from tests.deployed import wait_until
from tests.s3server import S3Server, started_or_skipped
from umbel.connectors import objects

OBJECTS, KILLS = 200, 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    (tmp_path / "s3").mkdir()
    yield from started_or_skipped(tmp_path / "s3")


def written(place: Place, chance: random.Random, rows: int) -> None:
    """Write objects of so many rows; what fails while the server is away is written again."""
    for number in range(OBJECTS):
        content = lines(range(number * rows, (number + 1) * rows))
        name = f"raw/2026/03/{number // 20 + 1:02}/{number:04}.json"
        while True:
            with contextlib.suppress(Exception):
                place.put(name, content)
                break
            time.sleep(0.1)
        time.sleep(chance.uniform(0.0, 0.05))


@pytest.mark.parametrize(
    ("spread", "rows"),
    [
        ("1d", 350),
        pytest.param(None, 350, marks=pytest.mark.nightly),
        pytest.param("1d", 5_000, marks=pytest.mark.nightly, id="a million rows"),
    ],
)
def test_every_row_comes_once(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: str | None, rows: int
) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    chance, place = random.Random(seed := random.randrange(1 << 30)), Place(server)
    print(f"seed {seed}")
    with deployed(tmp_path, clicks(place, path="raw/%Y/%m/%d/*.json", spread=spread)) as made:
        worker: Any = Worker(tmp_path / "umbel", tmp_path / "worker.log")
        writer = threading.Thread(target=written, args=(place, random.Random(seed + 1), rows))
        writer.start()
        try:
            for victim in chance.sample(["worker", "server"] * KILLS, KILLS):
                worker.mind()
                time.sleep(chance.uniform(0.2, 2.0))
                if victim == "server":
                    server.kill()
                    time.sleep(chance.uniform(0.0, 1.0))
                    server.start()
                else:
                    worker.kill("driver")
            writer.join()

            def count() -> int:
                worker.mind()
                return made.taken().get("Clicks", 0)

            wait_until(lambda: count() >= OBJECTS * rows, lambda: (count(), (tmp_path / "worker.log").read_text()), 150)
            worker.end()
            assert made.taken() == {"Clicks": OBJECTS * rows}
            assert sorted(made.changes("Clicks")["user"]) == list(range(OBJECTS * rows))
            assert made.deployment.catalog.dead_letters() == []
        finally:
            worker.end()
            writer.join()


def test_a_batch_goes_on_without_a_server_that_died_while_it_was_read(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All datasets waited for it."""
    monkeypatch.setattr(objects, "RETRIES", {"max_retries": 1})
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    place = Place(server)
    with deployed(tmp_path, clicks(place), note()) as made:
        for number in range(3):
            place.put(f"raw/{number}.json", lines(range(number * 10, number * 10 + 10)))
        made.log("notes", [{"n": 1, "at": NOW}])
        drain_after_death(made, server.kill)
        assert values(made, "Note") == [1]
        assert values(made, "Clicks", "user") == []
        assert len(warnings(made)) == 1
        server.start()
        place.put("raw/3.json", lines(range(30, 40)))
        drain_until(made, "Clicks", list(range(40)), "user")
        assert made.deployment.catalog.dead_letters() == []
