"""Collections that cannot be read: errors at commit, and servers that are away."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.mongo_shop import COLUMNS, inserted, order, orders, shop
from tests.connectors.shop_datasets import deployed, letters, process, rows_of, until
from tests.servers.mongo import PASSWORD, MongoServer
from umbel.connectors.mongo import cursor as reading
from umbel.errors import InvalidValue, NotSupported, PackageError, Transient

__owner__ = "shop@example.com"


def test_errors_at_commit_say_what_to_do(mongo: MongoServer, tmp_path: Path) -> None:
    inserted(mongo, "orders", [order(1, "", 1)])
    inserted(mongo, "flags", [{"updated_at": True}])
    for made, reason in [
        (orders(mongo, password="wrong-8731"), r"Authentication failed(?s:.*)correct username="),
        (orders(mongo, table="ordres"), r"no such collection(?s:.*)orders(?s:.*)createCollection"),
        (orders(mongo, cursor="updated"), r"no document has a 'updated'(?s:.*)updated_at"),
        (orders(mongo, table="flags"), r"that of the first one is bool"),
        (orders(mongo, host="reader:wrong-8731@localhost"), r"host has a login(?s:.*)username="),
        (orders(mongo, host="localhost:seven"), r"host: (?s:.*)localhost:27017"),
        (orders(mongo, db_name="a.b"), r"name of the database"),
    ]:
        with pytest.raises(InvalidValue, match=reason) as error, deployed(tmp_path, made):
            pass
        assert "wrong-8731" not in str(error.value)
        assert PASSWORD not in repr(shop(mongo)) + str(error.value)
    with (
        pytest.raises(NotSupported, match=r"change streams are not supported(?s:.*)cursor="),
        deployed(tmp_path, orders(mongo, cursor=None, cdc="native")),
    ):
        pass
    mongo.intercept = lambda each: (
        {"ok": 0.0, "code": 13, "errmsg": "not authorized on shop"} if "count" in each or "aggregate" in each else None
    )
    with (
        pytest.raises(InvalidValue, match=r'not authorized(?s:.*)role: "read", db: "shop"'),
        deployed(tmp_path, orders(mongo)),
    ):
        pass


def test_an_index_on_the_cursor_is_required(
    mongo: MongoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large collection; the error has the command."""
    monkeypatch.setattr(reading, "COUNTED", 50)
    inserted(mongo, "orders", [order(i, "", i) for i in range(60)])
    with mongo.client() as client:
        command = r'getCollection\("orders"\).createIndex\(\{"updated_at": 1\}\)'
        with pytest.raises(InvalidValue, match=command), deployed(tmp_path, orders(mongo)):
            pass
        client.shop.orders.create_index([("note", 1), ("updated_at", 1)])
        with pytest.raises(InvalidValue, match=command), deployed(tmp_path, orders(mongo)):
            pass
        client.shop.orders.create_index([("updated_at", -1), ("note", 1)])
        with deployed(tmp_path, orders(mongo)) as made:
            until(made, lambda: made.taken().get("Orders") == 60)


def test_an_empty_collection_gets_documents_later(mongo: MongoServer, tmp_path: Path) -> None:
    with mongo.client() as client:
        client.shop.create_collection("orders")
    with deployed(tmp_path, orders(mongo)) as made:
        process(made, 1.5)
        inserted(mongo, "orders", [order(1, "", 1)])
        until(made, lambda: made.taken().get("Orders") == 1)


@pytest.mark.nightly  # compiles its server
def test_a_collection_that_is_dropped_is_reported(mongo_lasting: MongoServer, tmp_path: Path) -> None:
    """And one that was made anew, whose earlier documents are not read."""
    inserted(mongo_lasting, "orders", [order(1, "", 100)])
    with deployed(tmp_path, orders(mongo_lasting, disorder="1s")) as made, mongo_lasting.client() as client:
        until(made, lambda: made.taken().get("Orders") == 1)
        client.shop.orders.drop()
        until(made, lambda: any("no such collection" in each.reason for each in letters(made)))
        inserted(mongo_lasting, "orders", [order(2, "", 1), order(3, "", 200)])
        until(made, lambda: any("made anew" in each.reason for each in letters(made)))
        until(made, lambda: [row[0] for row in rows_of(made, "Orders", COLUMNS)] == [1, 3])


@pytest.mark.parametrize(
    "answer",
    [
        {},
        pytest.param({"ok": 0.0, "code": 43, "errmsg": "cursor id 5 not found"}, marks=pytest.mark.nightly),
        pytest.param({"ok": 0.0, "code": 10107, "errmsg": "not primary"}, marks=pytest.mark.nightly),
    ],
)
def test_a_read_that_is_cut_goes_on(
    mongo: MongoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(reading, "MOST_PER_BATCH", 300)
    inserted(mongo, "orders", [order(i, f"n{i}", i / 1000) for i in range(3000)])
    left = [5, 4, 3, 2]

    def cut(command: Any) -> Any:
        if "getMore" in command and left and command["collection"] == "orders":
            left[-1] -= 1
            if left[-1] == 0:
                left.pop()
                return answer
        return None

    mongo.intercept = cut
    with deployed(tmp_path, orders(mongo)) as made:
        until(made, lambda: made.taken().get("Orders", 0) >= 3000)
        assert left == []
        process(made, 1.5)
        assert made.taken() == {"Orders": 3000}
        assert letters(made) == []


@pytest.mark.nightly  # compiles its server
def test_a_server_that_is_away_for_a_while(
    mongo_lasting: MongoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from umbel.connectors.mongo import server as connecting

    monkeypatch.setattr(connecting, "PATIENCE", 1)
    inserted(mongo_lasting, "orders", [order(i, "", i) for i in range(10)])
    with deployed(tmp_path, orders(mongo_lasting)) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        mongo_lasting.kill()
        process(made, 3)
        with pytest.raises(Transient, match="can be reached"), deployed(tmp_path / "other", orders(mongo_lasting)):
            pass
        mongo_lasting.start()
        inserted(mongo_lasting, "orders", [order(i, "", i) for i in range(10, 20)])
        until(made, lambda: made.taken()["Orders"] == 20)
        assert letters(made) == []


def test_addresses() -> None:
    from umbel.connectors.mongo.server import MongoServer as Server

    def address(host: str) -> str:
        return Server(title="", host=host, database="d", user="u", password="p").address

    assert address("localhost") == "mongodb://localhost"
    assert address("one:1,two:2") == "mongodb://one:1,two:2"
    assert address("cluster0.abcde.mongodb.net") == "mongodb+srv://cluster0.abcde.mongodb.net"
    assert address("cluster0-shard-00-01.abcde.mongodb.net") == "mongodb://cluster0-shard-00-01.abcde.mongodb.net"
    assert address("cluster0.abcde.mongodb.net:27017") == "mongodb://cluster0.abcde.mongodb.net:27017"
    assert address("mongodb+srv://h/?tls=true") == "mongodb+srv://h/?tls=true"


def test_a_missing_package_is_named_at_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymongo", None)
    gone = MongoServer(None)
    with pytest.raises(PackageError, match=r"pip install 'umbel\[mongo\]'"), deployed(tmp_path, orders(gone)):
        pass
