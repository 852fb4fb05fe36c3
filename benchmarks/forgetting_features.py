"""Pipelines with all kinds of state that a watermark bounds: waiting rows, versions, duplicates, sessions, windows."""

from __future__ import annotations

import os
from datetime import datetime

from umbel.connectors import Files, source
from umbel.datasets import Average, Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, Session, Tumbling
from umbel.lib import inputs

__owner__ = "benchmarks@example.com"

files = Files(name="shop", folder=os.environ.get("PIPELINES_DATA", "benchmarks/.data"))


@source(files.path("orders-*.ndjson", presorted=True), disorder="30d", cdc="append", every="1s")
@dataset
class Order:
    """An order; one in ten is sent twice."""

    order: int
    customer: int
    product: int
    quantity: int
    at: datetime


@source(files.path("prices-*.ndjson", presorted=True), disorder="30d", cdc="upsert", every="1s")
@dataset(index=True)
class Price:
    """The price of a product."""

    product: int = field(key=True)
    price: float
    at: datetime


@dataset
class Sale:
    """An order, once, with the price of its time."""

    customer: int
    amount: float
    at: datetime

    @pipeline
    @inputs(Order, Price)
    def priced(cls, orders, prices):  # type: ignore[no-untyped-def]
        """Drop what was sent twice; join the price."""
        once = orders.dedup("order", window=Tumbling("1d"))
        priced = once.join(prices, how="inner", on=["product"])
        return priced.assign("amount", float, lambda rows: rows["price"] * rows["quantity"]).select(
            "customer", "amount"
        )


@dataset(index=True)
class Spent:
    """What a customer has spent of late."""

    customer: int = field(key=True)
    sales_1d: int
    spent_7d: float
    mean_7d: float
    at: datetime

    @pipeline
    @inputs(Sale)
    def summed(cls, sales):  # type: ignore[no-untyped-def]
        """Aggregate per customer."""
        day, week = Continuous("1d"), Continuous("7d")
        return sales.groupby("customer").aggregate(
            sales_1d=Count(window=day),
            spent_7d=Sum(of="amount", window=week),
            mean_7d=Average(of="amount", window=week),
        )


@dataset(index=True)
class Visits:
    """How often a customer came, and with how many orders."""

    customer: int = field(key=True)
    visits: int
    orders: int
    at: datetime

    @pipeline
    @inputs(Order)
    def visited(cls, orders):  # type: ignore[no-untyped-def]
        """Orders that are less than half an hour apart are of one visit."""
        ever = Continuous("forever")
        sessions = orders.groupby("customer", window=Session("30m")).aggregate(orders=Count())
        return sessions.groupby("customer").aggregate(visits=Count(window=ever), orders=Sum(of="orders", window=ever))
