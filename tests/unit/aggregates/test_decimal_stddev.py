"""Stddev of decimals: exact where it is a whole number of units, of one key and of many."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal as Exact

import pandas as pd

from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, Stddev, dataset, field, index, pipeline
from umbel.dtypes import Continuous, Decimal, Tumbling
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "tests@example.com"
JAN = datetime(2026, 1, 1, tzinfo=UTC)


@source(Webhook(name="web").endpoint("prices"), disorder="1d", cdc="append")
@dataset
class Price:
    product: int
    price: Decimal[2]
    at: datetime


@index
@dataset
class Prices:
    product: int = field(key=True)
    spread: float
    at: datetime

    @pipeline
    @inputs(Price)
    def by_product(cls, prices: Dataset):
        return prices.groupby("product").aggregate(spread=Stddev(of="price", window=Continuous("1d")))


@source(Webhook(name="web").endpoint("rates"), disorder="1d", cdc="append")
@dataset
class Rate:
    pair: str
    rate: Decimal[28]
    at: datetime


@index
@dataset
class HourlyRates:
    pair: str = field(key=True)
    spread: float
    at: datetime

    @pipeline
    @inputs(Rate)
    def by_pair(cls, rates: Dataset):
        return rates.groupby("pair").aggregate(spread=Stddev(of="rate", window=Tumbling("1h")))


def test_emitted_over_28_digits() -> None:
    """The number of units in 1 overflowed int64 from a scale of 20 on: the emitted value was null."""
    rows = [("eur", "0.1", JAN), ("eur", "0.3", JAN), ("eur", "0.5", JAN + timedelta(hours=2))]
    client = MockClient()
    client.commit("rates", datasets=[Rate, HourlyRates])
    client.log("web", "rates", pd.DataFrame(rows, columns=["pair", "rate", "at"]))
    at = pd.Series([JAN + timedelta(hours=1)])
    found, _ = client.lookup(HourlyRates, pd.DataFrame({"pair": ["eur"]}), ["spread"], at)
    assert found.round(9).tolist() == [0.1]


def test_whole_units_are_exact() -> None:
    products = list(range(1, 400))
    rows = [{"product": n, "price": Exact(cents) / 100, "at": JAN} for n in products for cents in (0, 2 * n)]
    client = MockClient()
    client.commit("prices", datasets=[Price, Prices])
    client.log("web", "prices", pd.DataFrame(rows))
    instants = pd.Series([JAN] * len(products))
    found, _ = client.lookup(Prices, pd.DataFrame({"product": products}), ["spread"], instants)
    assert found.tolist() == [n / 100 for n in products]
