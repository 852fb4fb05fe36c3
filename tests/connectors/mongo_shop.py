"""A shop in MongoDB: its source, and datasets of its collections."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.servers.mongo import PASSWORD, USER, MongoServer
from umbel.connectors import Mongo, source
from umbel.datasets import dataset, field

__owner__ = "shop@example.com"
COLUMNS = ["id", "note", "updated_at"]
START = datetime(2026, 1, 1, tzinfo=UTC)


def shop(server: MongoServer, **options: Any) -> Mongo:
    """Return the source of the database `shop`."""
    login = {"host": server.host, "username": USER, "password": PASSWORD, **options}
    return Mongo(name="shop", db_name=login.pop("db_name", "shop"), **login)


def orders(server: MongoServer, *, table: str = "orders", cursor: str | None = "updated_at", **how: Any) -> Any:
    """Return a keyed dataset."""
    login = {name: how.pop(name) for name in ("username", "password", "host", "db_name") if name in how}
    options = {"disorder": "1h", "every": "1s", "cdc": "upsert", **how}

    @source(shop(server, **login).collection(table, cursor), **options)
    @dataset(index=True)
    class Orders:
        id: int = field(key=True)
        note: str
        updated_at: datetime

    return Orders


def events(server: MongoServer, cursor: str = "at", **how: Any) -> Any:
    """Return a keyless dataset."""
    options = {"disorder": "1h", "every": "1s", "cdc": "append", **how}

    @source(shop(server).collection("events", cursor), **options)
    @dataset
    class Events:
        n: int
        at: datetime

    return Events


def inserted(server: MongoServer, table: str, documents: list[Any]) -> None:
    """Insert documents into a collection."""
    with server.client() as client:
        client.shop[table].insert_many(documents)


def numbered(first: int, last: int, at: Callable[[int], Any]) -> list[Any]:
    """Return documents of `events`.

    Args:
        first: number.
        last: the number after the last one.
        at: returns the value of the field `c` of a number.
    """
    return [{"n": i, "at": START + timedelta(seconds=i), "c": at(i)} for i in range(first, last)]


def order(number: int, note: str, seconds: float) -> dict[str, Any]:
    """Return a document of `orders`."""
    return {"_id": number, "id": number, "note": note, "updated_at": START + timedelta(seconds=seconds)}


def finds(server: MongoServer) -> list[Any]:
    """Return the finds in the order of a cursor."""
    return [each for each in server.named("find") if "sort" in each]
