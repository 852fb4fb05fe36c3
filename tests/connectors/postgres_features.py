"""A program that reads two tables of Postgres: one by a cursor, the changes of the other."""

from __future__ import annotations

import os
from datetime import datetime

from umbel import Continuous, Count, Dataset, dataset, featureset, field, index, inputs, pipeline
from umbel import feature as F
from umbel.connectors import Postgres, source

__owner__ = "shop@example.com"

shop = Postgres(
    name="shop",
    host="127.0.0.1",
    port=int(os.environ.get("SHOP_PORT", "5432")),
    db_name="postgres",
    username="umbel",
    password=os.environ.get("SHOP_PASSWORD", ""),
)


@source(shop.table("users"), disorder="14d", cdc="native")
@dataset(index=True)
class User:
    uid: int = field(key=True)
    city: str
    updated_at: datetime


@source(shop.table("orders", cursor="id"), every="1s", disorder="14d", cdc="append")
@dataset
class Order:
    uid: int
    at: datetime


@index
@dataset
class OrdersOfUser:
    uid: int = field(key=True)
    orders: int
    at: datetime

    @pipeline
    @inputs(Order)
    def count(cls, orders: Dataset):
        return orders.groupby("uid").aggregate(orders=Count(window=Continuous("forever")))


@featureset
class Shopper:
    uid: int
    city: str = F(User.city, default="?")
    orders: int = F(OrdersOfUser.orders, default=0)
