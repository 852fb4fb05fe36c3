"""The worker is killed at random instants while rows come; in the end the dataset has each of them once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.connectors.killing import Worker
from tests.connectors.shop_datasets import deployed, letters
from tests.deployed import Deployed, wait_until

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
STEP = 250


def row(n: int) -> dict[str, Any]:
    """Return the row of a number."""
    return {"n": n, "name": f"row {n}", "at": (BEGIN + timedelta(milliseconds=n)).isoformat()}


@dataclass(frozen=True)
class Feed:
    """Rows that come while a worker is killed.

    Args:
        put: puts the rows of a range into the source.
        rows: how many.
        kills: how many.
        disturb: called after each kill.
    """

    put: Callable[[int, int], object]
    rows: int
    kills: int
    disturb: Callable[[], object] = lambda: None

    def write(self, number: int) -> None:
        """Put the rows of a kill, which takes a second."""
        wave = self.rows // self.kills
        for first in range(number * wave, (number + 1) * wave, STEP):
            self.put(first, min((number + 1) * wave, first + STEP))
            time.sleep(STEP / wave)


def run(folder: Path, definition: Any, feed: Feed, chance: random.Random) -> None:
    """Kill the worker while it reads; compare the dataset `Events` at the end."""
    log = folder / "worker.log"
    with deployed(folder, definition) as made:
        worker, writers = Worker(folder / "umbel", log), list[threading.Thread]()
        try:
            for number in range(feed.kills):
                before = staged(folder)
                worker.begin()
                writers.append(threading.Thread(target=feed.write, args=(number,)))
                writers[-1].start()
                wait_until(lambda: staged(folder) > before, log.read_text)  # noqa: B023
                time.sleep(chance.uniform(0.0, 1.5))  # any instant of reading, staging, acknowledging and of a batch
                worker.kill("driver")
                feed.disturb()
            for each in writers:
                each.join()

            def is_done() -> bool:
                worker.mind()
                return made.taken().get("Events", 0) >= feed.rows

            wait_until(is_done, lambda: (made.taken(), log.read_text()[-3000:]), 300)
        finally:
            worker.end()
            for each in writers:
                each.join()
        compare(made, feed.rows)


def staged(folder: Path) -> int:
    """Return the number of the last part that was staged."""
    return max((int(path.stem) for path in folder.glob("umbel/staged/*/*.rows")), default=0)


def compare(made: Deployed, rows: int) -> None:
    """Compare the dataset with the rows that were put."""
    found = made.changes("Events")
    assert found["_weight"].unique().to_list() == [1]
    assert sorted(zip(found["n"], found["name"], strict=True)) == [(n, f"row {n}") for n in range(rows)]
    assert letters(made) == []
