"""A worker is killed while the tables of a warehouse grow and change; in the end the datasets are what the tables are."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.connectors.killing import Worker, killed
from tests.connectors.shop_datasets import deployed, letters, rows_of
from tests.deployed import wait_until

KILLS, EXISTING, ROUNDS, PER_ROUND = 10, 20_000, 40, 100


def run(folder: Path, datasets: Sequence[Any], write: Callable[[int, int], None], read: Callable[[], list[Any]]) -> str:
    """Kill the worker while rows are written, compare at the end, and return the worker's log.

    Args:
        folder: of the deployment.
        datasets: `Orders` with the ids from 1, and `Events` with the numbers from 0; `EXISTING` rows are there.
        write: inserts a hundred rows into each table from an id on, and changes a hundred orders from another one on.
        read: returns the rows of the table of orders.
    """
    chance = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")

    def written() -> None:
        for step in range(ROUNDS):
            write(EXISTING + 1 + step * PER_ROUND, chance.randrange(EXISTING - PER_ROUND))
            time.sleep(0.2)

    total, log = EXISTING + ROUNDS * PER_ROUND, folder / "worker.log"
    with deployed(folder, *datasets) as made:
        worker, writer = Worker(folder / "umbel", log), threading.Thread(target=written)
        try:
            killed(worker, writer, KILLS, chance)

            def is_done() -> bool:
                worker.mind()
                is_long = len(made.changes("Events")) >= total
                return is_long and rows_of(made, "Orders", ["id", "note", "updated_at"]) == read()

            wait_until(is_done, lambda: log.read_text()[-3000:], 120)
            assert sorted(made.changes("Events")["n"]) == list(range(total))
            assert letters(made) == []
        finally:
            worker.end()
            writer.join()
    return log.read_text()
