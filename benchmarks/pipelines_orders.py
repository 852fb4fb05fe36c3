"""Pipeline (a): orders with the prices of their time, filtered and assigned by lambdas, aggregated per customer and category."""

from __future__ import annotations

import os
from datetime import datetime

from umbel.connectors import Files, source
from umbel.datasets import Average, Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs

__owner__ = "benchmarks@example.com"

files = Files(name="shop", folder=os.environ.get("PIPELINES_DATA", "benchmarks/.data"))
FEATURES = {
    "orders_1d": Count(window=Continuous("1d")),
    "spent_1d": Sum(of="amount", window=Continuous("1d")),
    "mean_1d": Average(of="amount", window=Continuous("1d")),
    "spent_7d": Sum(of="amount", window=Continuous("7d")),
    "orders": Count(window=Continuous("forever")),
}


@source(files.path("orders-*.ndjson"), disorder="3d", cdc="append", every="1s")
@dataset
class Order:
    """An order."""

    order: int
    customer: int
    product: int
    quantity: int
    channel: str
    at: datetime


@source(files.path("prices-*.ndjson"), disorder="3d", cdc="upsert", every="1s")
@dataset(index=True)
class Price:
    """The price of a product."""

    product: int = field(key=True)
    price: float
    category: str
    supplier: int
    at: datetime


@dataset
class Sale:
    """An order with its price."""

    customer: int
    category: str
    amount: float
    at: datetime

    @pipeline
    @inputs(Order, Price)
    def priced(cls, orders, prices):  # type: ignore[no-untyped-def]
        """Join the price of the order's time."""
        return (
            orders.join(prices, how="inner", on=["product"])
            .filter(lambda rows: rows["quantity"] > 0)
            .assign("amount", float, lambda rows: rows["price"] * rows["quantity"])
            .select("customer", "category", "amount")
        )


@dataset(index=True)
class ByCustomer:
    """What a customer has bought of late."""

    customer: int = field(key=True)
    orders_1d: int
    spent_1d: float
    mean_1d: float
    spent_7d: float
    orders: int
    at: datetime

    @pipeline
    @inputs(Sale)
    def aggregated(cls, sales):  # type: ignore[no-untyped-def]
        """Aggregate per customer."""
        return sales.groupby("customer").aggregate(**FEATURES)


@dataset(index=True)
class ByCategory:
    """What was sold of a category of late."""

    category: str = field(key=True)
    orders_1d: int
    spent_1d: float
    mean_1d: float
    spent_7d: float
    orders: int
    at: datetime

    @pipeline
    @inputs(Sale)
    def aggregated(cls, sales):  # type: ignore[no-untyped-def]
        """Aggregate per category."""
        return sales.groupby("category").aggregate(**FEATURES)
