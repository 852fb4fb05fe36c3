"""Cursors of other types than most: none is skipped without a dead letter."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from pathlib import Path

from bson import Decimal128, MaxKey, MinKey, ObjectId, Timestamp

from tests.connectors.mongo_shop import START, events, inserted, numbered, shop
from tests.connectors.shop_datasets import deployed, letters, process, until
from tests.servers.mongo import MongoServer
from umbel.connectors import eval as computed
from umbel.connectors import source
from umbel.connectors.mongo import cursor as reading
from umbel.datasets import dataset
from umbel.expr import col

__owner__ = "shop@example.com"


STRAYS = {
    "text": "2026-01-01", "number": 5, "null": None, "array": [START], "both": ["x", START], "object": {"a": START},
    "yes": True, "binary": b"x", "id": ObjectId(), "timestamp": Timestamp(5, 1),
}  # fmt: skip


def test_cursors_of_other_types_are_dead_letters(mongo: MongoServer, tmp_path: Path) -> None:
    """MongoDB compares within a type: a find from a date on returns no text."""
    inserted(mongo, "events", [{"_id": name, "n": 1, "at": value} for name, value in STRAYS.items()])
    inserted(mongo, "events", [{"_id": "missing", "n": 1}, *({"n": i, "at": START} for i in range(20))])
    with deployed(tmp_path, events(mongo)) as made:
        until(made, lambda: made.taken().get("Events", 0) >= 20 + len(STRAYS) + 1)
        process(made, 2.2)
        assert sorted(made.changes("Events")["n"]) == list(range(20))
        inserted(mongo, "events", [{"_id": "later", "n": 1, "at": "x"}])
        until(made, lambda: made.taken()["Events"] >= 20 + len(STRAYS) + 2)
        process(made, 2.2)
        found = letters(made)
    ids = sorted(each.position.rpartition("_id ")[2] for each in found)
    assert ids == sorted([*STRAYS, "missing", "later"])
    (text,) = (each.reason for each in found if each.position.endswith("_id text"))
    assert "'at' is string" in text
    assert "others are date" in text.replace("other documents", "others")


def test_not_a_number_and_special_keys_as_cursors(mongo_typed: MongoServer, tmp_path: Path) -> None:
    odd = {"nan": math.nan, "decimal": Decimal128("NaN"), "least": MinKey(), "most": MaxKey(), "date": START}
    inserted(mongo_typed, "events", [{"_id": name, "n": 1, "at": START, "c": value} for name, value in odd.items()])
    inserted(mongo_typed, "events", numbered(0, 30, lambda i: i))
    with deployed(tmp_path, events(mongo_typed, "c", disorder="1s")) as made:
        until(made, lambda: made.taken().get("Events", 0) >= 35)
        inserted(mongo_typed, "events", numbered(30, 40, float))
        until(made, lambda: made.taken()["Events"] >= 45)
        process(made, 2.2)
        assert sorted(made.changes("Events")["n"]) == list(range(40))
        assert sorted(each.position.rpartition("_id ")[2] for each in letters(made)) == sorted(odd)


def test_many_cursors_of_another_type_are_reported_once(mongo: MongoServer, tmp_path: Path) -> None:
    inserted(mongo, "events", numbered(0, 300, lambda i: i))
    inserted(mongo, "events", [{"n": 1, "at": START, "c": f"x{i}"} for i in range(250)])
    with deployed(tmp_path, events(mongo, "c")) as made:
        until(made, lambda: made.taken().get("Events", 0) >= 300 + reading.MOST_STRAYS + 1)
        process(made, 2.5)
        assert len(made.changes("Events")) == 300
        found = made.deployment.catalog.dead_letters(limit=1000)
    assert len(found) == reading.MOST_STRAYS + 1
    (report,) = (each.reason for each in found if "more than" in each.reason)
    assert "another type than number, as string" in report
    assert "new version" in report


def test_a_cursor_in_a_subdocument(mongo: MongoServer, tmp_path: Path) -> None:
    documents = [{"n": i, "at": START, "meta": {"seen": START + timedelta(seconds=i)}} for i in range(20)]
    inserted(mongo, "events", [*documents, {"_id": "array", "n": 1, "at": START, "meta": [{"seen": START}]}])
    with deployed(tmp_path, events(mongo, "meta.seen")) as made:
        until(made, lambda: made.taken().get("Events", 0) >= 21)
        inserted(mongo, "events", [{"n": 20, "at": START, "meta": {"seen": START + timedelta(minutes=1)}}])
        until(made, lambda: made.taken()["Events"] >= 22)
        assert sorted(made.changes("Events")["n"]) == list(range(21))
        assert [each.position.rpartition("_id ")[2] for each in letters(made)] == ["array"]


def test_all_fields_are_there_for_preproc(mongo: MongoServer, tmp_path: Path) -> None:
    inserted(mongo, "events", [{"_id": i, "first": i, "second": i, "at": START} for i in range(5)])

    @source(
        shop(mongo).collection("events", "_id"), disorder="1h", cdc="append", every="1s",
        preproc={"n": computed(col("first") + col("second"), schema={"first": int, "second": int})},
        where=computed(col("first") > 1, schema={"first": int}),
    )  # fmt: skip
    @dataset
    class Sums:
        n: int
        at: datetime

    with deployed(tmp_path, Sums) as made:
        until(made, lambda: len(made.changes("Sums")) == 3)
        assert sorted(made.changes("Sums")["n"]) == [4, 6, 8]
        assert letters(made) == []
