"""The worker and the server are killed again and again; in the end the datasets are what the collections are."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.killing import Worker
from tests.connectors.mongo_shop import COLUMNS, events, orders
from tests.connectors.shop_datasets import letters, rows_of
from tests.deployed import Deployed, wait_until
from tests.seeds import new_seed
from tests.servers.mongo import MongoServer, lasting_or_missing


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MongoServer]:
    yield from lasting_or_missing(tmp_path / "mongo")


def now() -> datetime:
    return datetime.now(UTC)


def written(server: MongoServer, chance: random.Random, rows: int) -> None:
    """Insert documents and change some; of a write that a kill cuts, what is there is there."""
    from pymongo import UpdateMany

    with server.client() as client:
        for first in range(rows // 2, rows, step := rows // 40):
            new = range(first, first + step)
            low = chance.randrange(rows // 2)
            change = UpdateMany({"_id": {"$gte": low, "$lt": low + 30}}, {"$set": {"note": "new", "updated_at": now()}})
            with contextlib.suppress(Exception):
                client.shop.orders.insert_many([order(i) for i in new])
                client.shop.events.insert_many([{"n": i, "at": now()} for i in new])
                client.shop.orders.bulk_write([change])
            time.sleep(0.3)


def order(number: int) -> dict[str, Any]:
    return {"_id": number, "id": number, "note": f"n{number}", "updated_at": now()}


def present(server: MongoServer) -> tuple[list[Any], list[int]]:
    """Return the documents of the collections."""
    with server.client() as client:
        rows = client.shop.orders.find()
        found = [(each["id"], each["note"], each["updated_at"].replace(tzinfo=UTC)) for each in rows]
        return sorted(found), sorted(each["n"] for each in client.shop.events.find())


@pytest.mark.nightly  # compiles its server
@pytest.mark.parametrize("rows", [8_000, 200_000])
def test_killed_workers_and_servers(server: MongoServer, tmp_path: Path, rows: int) -> None:
    chance, kills = random.Random(new_seed()), 10
    begun = now() - timedelta(hours=1)
    with server.client() as client:
        client.shop.orders.insert_many([{**order(i), "updated_at": begun} for i in range(rows // 2)])
        client.shop.events.insert_many([{"n": i, "at": begun} for i in range(rows // 2)])
        client.shop.orders.create_index("updated_at")
    made = Deployed(tmp_path / "umbel")
    made.commit([orders(server, disorder="30s"), events(server, "_id", disorder="30s")])
    worker = Worker(tmp_path / "umbel", tmp_path / "worker.log")
    writer = threading.Thread(target=written, args=(server, random.Random(chance.random()), rows))
    writer.start()
    try:
        for victim in chance.sample(["worker", "server"] * (kills // 2), kills):
            worker.mind()
            time.sleep(chance.uniform(0.2, 1.5))
            if victim == "server":
                server.kill()
                time.sleep(chance.uniform(0.0, 0.5))
                server.start()
            else:
                worker.kill("driver")
        writer.join()
        found, numbers = present(server)
        assert len(found) > rows // 2

        def is_done() -> bool:
            worker.mind()
            return rows_of(made, "Orders", COLUMNS) == found and sorted(made.changes("Events")["n"]) == numbers

        wait_until(
            is_done,
            lambda: (made.taken(), len(found), (tmp_path / "worker.log").read_text()[-3000:]),
            120 + rows // 5_000,
        )
        assert letters(made) == []
    finally:
        worker.end()
        writer.join()
        made.close()
