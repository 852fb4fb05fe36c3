"""Lookups of lists of keys (api §6.2)."""

from datetime import datetime, timezone
from decimal import Decimal as PythonDecimal
from typing import List, Optional

import pandas as pd

from umbel.connectors import Webhook, source
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.testing import MockClient, log, mock

__owner__ = "team@example.com"

T = datetime(2024, 1, 1, tzinfo=timezone.utc)


@source(Webhook(name="w").endpoint("Items"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Items:
    sku: int = field(key=True)
    name: str
    stock: Optional[int]
    price: Decimal[2]
    on: bool
    t: datetime


ROWS = pd.DataFrame(
    {
        "sku": [1, 2],
        "name": ["one", "two"],
        "stock": [5, None],
        "price": [PythonDecimal("1.25"), PythonDecimal("2.50")],
        "on": [True, False],
        "t": [T, T],
    }
)


@featureset
class Basket:
    sku: List[Optional[int]] = F()
    name: List[Optional[str]] = F(Items.name)
    stock: List[int] = F(Items.stock, default=-1)


@featureset
class Narrow:
    sku: List[int] = F()
    name: List[str] = F(Items.name, default="?")


@mock
def test_null_elements_of_key_lists_are_not_found(client) -> None:
    client.commit(message="m", datasets=[Items], featuresets=[Basket, Narrow])
    log(Items, ROWS)
    frame = pd.DataFrame({"Basket.sku": [[1, None, 3, 2], [], [None]]})
    found = client.query([Basket.sku], [Basket.name, Basket.stock], frame)
    assert found["Basket.name"].tolist() == [["one", pd.NA, pd.NA, "two"], [], [pd.NA]]
    assert found["Basket.stock"].tolist() == [[5, -1, -1, -1], [], [-1]]
    found = client.query([Narrow.sku], [Narrow.name], pd.DataFrame({"Narrow.sku": [[2, 7]]}))
    assert found["Narrow.name"].tolist() == [["two", "?"]]


@mock
def test_many_null_elements(client) -> None:
    client.commit(message="m", datasets=[Items], featuresets=[Basket])
    log(Items, ROWS)
    keys = [1, None, 2] * 400
    found = client.query([Basket.sku], [Basket.stock], pd.DataFrame({"Basket.sku": [keys]}))
    assert found["Basket.stock"].tolist() == [[5, -1, -1] * 400]


def test_keys_that_are_lists_are_looked_up_as_they_are() -> None:
    @dataset(index=True)
    class ByTags:
        tags: List[str] = field(key=True)
        scores: List[float]
        t: datetime

    @featureset
    class Tagged:
        tags: List[str] = F()
        scores: List[float] = F(ByTags.scores, default=[0.0])

    client = MockClient()
    client.commit(message="m", datasets=[ByTags], featuresets=[Tagged])
    log(ByTags, pd.DataFrame({"tags": [["a", "b"]], "scores": [[1.0, 2.0]], "t": [T]}))
    found = client.query([Tagged.tags], [Tagged.scores], pd.DataFrame({"Tagged.tags": [["a", "b"], ["b"]]}))
    assert found["Tagged.scores"].tolist() == [[1.0, 2.0], [0.0]]
