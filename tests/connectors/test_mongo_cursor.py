"""Collections of a server of MongoDB's protocol, read by a cursor: every document once, by one find per period."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, Timestamp

from tests.connectors.mongo_shop import COLUMNS, START, events, finds, inserted, order, orders
from tests.connectors.shop_datasets import deployed, letters, process, rows_of, until
from tests.servers.mongo import MongoServer
from umbel.api.dataset import redefined
from umbel.connectors.mongo import cursor as reading
from umbel.connectors.polling import stop_polling

__owner__ = "shop@example.com"


def test_documents_and_their_updates_arrive(mongo: MongoServer, tmp_path: Path) -> None:
    inserted(mongo, "orders", [order(i, f"n{i}", i / 1000) for i in range(2000)])
    with deployed(tmp_path, orders(mongo)) as made, mongo.client() as client:
        until(made, lambda: made.taken().get("Orders") == 2000)
        for i in range(10):
            client.shop.orders.replace_one({"_id": i}, order(i, "it's \n new ä", 10))
        inserted(mongo, "orders", [order(i, "late", 4) for i in range(2000, 2005)])
        until(made, lambda: made.taken()["Orders"] == 2015)
        process(made, 1.5)
        found = [
            (each["id"], each["note"], each["updated_at"].replace(tzinfo=UTC)) for each in client.shop.orders.find()
        ]
        assert rows_of(made, "Orders", COLUMNS) == sorted(found)
        assert made.taken() == {"Orders": 2015}
        assert letters(made) == []
        assert set(finds(mongo)[-1]["projection"]) == {"_id", *COLUMNS}, "no more than what is needed"


CURSORS: dict[str, Callable[[int], Any]] = {
    "date": lambda i: START + timedelta(milliseconds=i // 100),
    "old date": lambda i: datetime(1900, 1, 1) + timedelta(milliseconds=i // 100),
    "ObjectId": lambda i: ObjectId((1_700_000_000 + i // 100).to_bytes(4, "big") + bytes(8)),
    "timestamp": lambda i: Timestamp(1_700_000_000, i // 100),
    "int": lambda i: i // 100 - 3,
    "widths": lambda i: (float, Int64, int)[i % 3](i // 100),
    "text": lambda i: f"w{i // 100:05d} 'ä\U0001f600",
}


KINDS: dict[str, Callable[[int], Any]] = {**CURSORS, "decimals": lambda i: (int, float, _decimal)[i % 3](i // 100)}


def _decimal(number: int) -> Decimal128:
    return Decimal128(f"{number}.00")  # equal to the int and the float


def kinds(mongo: MongoServer) -> dict[str, Callable[[int], Any]]:
    return {name: at for name, at in KINDS.items() if name != "decimals" or "decimal" not in mongo.behind.unknown}


def by_cursor(mongo: MongoServer, numbers: Sequence[int], per_value: int) -> list[Any]:
    """Return documents with a cursor of each kind."""
    cursors = kinds(mongo).items()
    return [
        {"n": i, "at": START, **{name.replace(" ", ""): at(i * 100 // per_value) for name, at in cursors}}
        for i in numbers
    ]


def each_cursor(mongo: MongoServer, **how: Any) -> dict[str, Any]:
    names = {each.title().replace(" ", ""): each.replace(" ", "") for each in kinds(mongo)}
    return {name: redefined(events(mongo, cursor, **how), name=name) for name, cursor in names.items()}


def test_equal_cursors_are_neither_lost_nor_doubled(
    mongo: MongoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each type that a cursor may have."""
    monkeypatch.setattr(reading, "MOST_PER_BATCH", 70)  # parts end among equal values
    inserted(mongo, "events", by_cursor(mongo, range(450), 100))
    datasets = each_cursor(mongo, disorder="2s")
    with deployed(tmp_path, *datasets.values()) as made:
        until(made, lambda: made.taken() == dict.fromkeys(datasets, 450))
        until(
            made,
            lambda: (
                {next(iter(each["filter"].values())).keys() == {"$gte"} for each in finds(mongo)[-len(datasets) :]}
                == {True}
            ),
        )
        inserted(mongo, "events", by_cursor(mongo, range(450, 700), 100))  # the first 50 have the highest cursor
        until(made, lambda: min(made.taken().values()) >= 700)
        process(made, 2.5)
        for name in datasets:
            assert sorted(made.changes(name)["n"]) == list(range(700)), name
        assert letters(made) == []


def test_a_document_that_is_written_late_is_found(mongo: MongoServer, tmp_path: Path) -> None:
    """By `disorder`: of values that are no times, from the highest one as of that long ago."""
    inserted(mongo, "events", by_cursor(mongo, range(1000, 1005), 1))
    datasets = each_cursor(mongo)
    with deployed(tmp_path, *datasets.values()) as made:
        until(made, lambda: made.taken() == dict.fromkeys(datasets, 5))
        inserted(mongo, "events", by_cursor(mongo, range(500, 505), 1))
        until(made, lambda: made.taken() == dict.fromkeys(datasets, 10))
        process(made, 1.5)
        for name in datasets:
            assert sorted(made.changes(name)["n"]) == [*range(500, 505), *range(1000, 1005)], name


def test_a_keyless_dataset_takes_a_document_once_for_each_cursor(mongo: MongoServer, tmp_path: Path) -> None:
    inserted(mongo, "events", [{"_id": 1, "n": 1, "at": START}])
    with deployed(tmp_path, events(mongo)) as made, mongo.client() as client:
        until(made, lambda: made.taken().get("Events") == 1)
        client.shop.events.update_one({"_id": 1}, {"$set": {"n": 2}})
        process(made, 2.2)
        assert made.changes("Events")["n"].to_list() == [1]
        client.shop.events.update_one({"_id": 1}, {"$set": {"n": 3, "at": START + timedelta(seconds=1)}})
        until(made, lambda: made.taken()["Events"] == 2)
        assert sorted(made.changes("Events")["n"]) == [1, 3]


def test_one_find_per_period(mongo: MongoServer, tmp_path: Path) -> None:
    inserted(mongo, "orders", [order(i, "", i) for i in range(1000)])
    with deployed(tmp_path, orders(mongo, every="2s")) as made:
        start = time.monotonic()
        while time.monotonic() - start < 7:
            process(made, 0.7)
            stop_polling(tmp_path)  # as restarts would do
        assert made.taken() == {"Orders": 1000}
    found = finds(mongo)
    assert 3 <= len(found) <= (time.monotonic() - start) / 2 + 2
    assert all(each["sort"] == {"updated_at": 1} for each in found)
    strays = [each for each in mongo.named("find") if "sort" not in each]
    assert all(each["limit"] == reading.MOST_STRAYS + 1 for each in strays[1:])
