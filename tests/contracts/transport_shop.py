"""What the contract of transports runs on: definitions, rows, and a server and a mock client that have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal as Number
from pathlib import Path
from typing import Optional

import httpx
import numpy as np
import pandas as pd

from tests.unit.serving.asgi import serving_admin
from umbel.client import Client
from umbel.connectors import Webhook, source
from umbel.datasets import Average, Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Continuous, Decimal, struct
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs, secrets
from umbel.runtime.batch import drain
from umbel.runtime.deployment import Deployment
from umbel.testing import MockClient

__owner__ = "tests@example.com"
webhook = Webhook(name="shop")
JAN = datetime(2024, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@struct
class Point:
    x: float
    y: Optional[int]


@source(webhook.endpoint("users"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Users:
    uid: int = field(key=True, erase_key=True)
    name: Optional[str]
    price: Decimal[2]
    weight: Optional[float]
    raw: bytes
    where: Point
    marks: dict[str, int]
    tags: list[str]
    t: datetime


@source(webhook.endpoint("orders"), disorder="14d", cdc="append")
@dataset
class Orders:
    uid: int
    amount: float
    t: datetime


@dataset(index=True)
class Spent:
    uid: int = field(key=True)
    orders: int
    mean: float
    t: datetime

    @pipeline
    @inputs(Orders)
    def sum_up(cls, orders: Dataset):
        window = Continuous("forever")
        return orders.groupby("uid").aggregate(
            orders=Count(window=window), mean=Average(of="amount", window=window, default=-1.0)
        )


@dataset(online=True)
class OnlyOnline:
    uid: int = field(key=True)
    orders: int
    t: datetime

    @pipeline
    @inputs(Orders)
    def count(cls, orders: Dataset):
        return orders.groupby("uid").aggregate(orders=Count(window=Continuous("forever")))


@featureset
class User:
    uid: int
    name: Optional[str] = F(Users.name)
    price: Optional[Decimal[2]] = F(Users.price)
    weight: float = F(Users.weight, default=-1.0)
    raw: Optional[bytes] = F(Users.raw)
    where: Optional[Point] = F(Users.where)
    marks: Optional[dict[str, int]] = F(Users.marks)
    tags: list[str] = F(Users.tags, default=["none"])
    since: Optional[datetime] = F(Users.t)
    orders: int = F(Spent.orders, default=0)
    mean: float = F(Spent.mean, default=0.0)
    doubled: float = F(col("mean") * 2.0)
    live: int = F(OnlyOnline.orders, default=0)


@featureset
class Computed:
    who: int
    twice: int
    half: float
    is_odd: bool
    label: str
    at: datetime
    word: Optional[str]
    seen: bool

    @extractor
    @inputs("who")
    @outputs("twice", "half", "is_odd", "label", "at")
    def plain(cls, ts: pd.Series, who: pd.Series):
        who = who.astype("int32")
        return pd.DataFrame(
            {"twice": who * 2, "half": (who / 2).astype("float32"), "is_odd": (who % 2 == 1).astype(bool),
             "label": who.astype(str).astype(object), "at": pd.Series([JAN] * len(who))}
        )  # fmt: skip

    @extractor
    @inputs("who")
    @outputs("word")
    def worded(cls, ts: pd.Series, who: pd.Series):
        if (who < 0).any():
            raise ValueError("nobody is less than nobody")
        return pd.Series([secrets.get("word") if each else None for each in who], name="word", dtype="string")

    @extractor(deps=[Users])
    @inputs("who")
    @outputs("seen")
    def looked_up(cls, ts: pd.Series, who: pd.Series):
        return Users.lookup(ts, uid=who)[1].rename("seen")


@featureset
class Constant:
    day: int

    @extractor
    @outputs("day")
    def one(cls, ts: pd.Series):
        return pd.Series([1] * len(ts), name="day")


@featureset
class Alias:
    again: int = F(Computed.twice)
    same: int = F(Computed.who)


USERS = pd.DataFrame(
    {
        "uid": [1, 2, 1],
        "name": ["ann", None, "anna"],
        "price": [Number("1.50"), Number("2.25"), Number("-3.00")],
        "weight": pd.array([1.5, np.inf, None], dtype="Float64"),
        "raw": [b"\x00\xff", b"", b"x"],
        "where": [Point(1.0, 2), {"x": 2.5, "y": None}, Point(0.0, None)],
        "marks": [{"a": 1}, {}, {"b": 2, "c": 3}],
        "tags": [["x", "y"], [], ["z"]],
        "t": [JAN, JAN + timedelta(microseconds=1), JAN + DAY],
    }
)
ORDERS = pd.DataFrame({"uid": [1, 1, 2], "amount": [1.0, 2.5, 10.0], "t": [JAN, JAN + DAY, JAN]})


@dataclass
class Platform:
    """A client, and what makes its platform process the rows that were logged."""

    client: Client
    settle: Callable[[], object]


def begun(platform: Platform) -> Platform:
    """Commit everything, log all rows, and wait until they are processed."""
    client = platform.client
    client.commit(
        message="all", datasets=[Users, Orders, Spent, OnlyOnline], featuresets=[User, Computed, Alias, Constant]
    )
    client.add_secret("word", "hello")
    client.log("shop", "users", USERS)
    client.log("shop", "orders", ORDERS, batch_size=2)
    platform.settle()
    return platform


def served_at(folder: Path) -> Iterator[Platform]:
    """Yield a server without definitions."""
    deployment = Deployment.at(folder, shards=2)
    with (
        serving_admin(deployment) as transport,
        httpx.Client(transport=transport, base_url="http://umbel") as http,
        Client("http://umbel", transport=transport) as client,
    ):

        def settle() -> None:
            drain(deployment)
            http.get("/readyz")  # the server looks what serves by now

        yield Platform(client, settle)
    deployment.store.close()
    deployment.catalog.close()


def mocked() -> Platform:
    """Return a mock client without definitions."""
    return Platform(MockClient(), lambda: None)
