"""Lists of embeddings over rows that are replaced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Optional

import pandas as pd

from tests.deployed import Deployed
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, FirstK, LastK, dataset, field, pipeline
from umbel.dtypes import Continuous, Embedding
from umbel.lib import inputs
from umbel.runtime.batch import drain
from umbel.testing import MockClient

__owner__ = "tests@example.com"
JAN = datetime(2026, 1, 1, tzinfo=UTC)


@source(Webhook(name="web").endpoint("items"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Item:
    item: int = field(key=True)
    shop: str
    vector: Optional[Embedding[2]]
    at: datetime


@dataset(index=True)
class Shop:
    shop: str = field(key=True)
    last: list[Embedding[2]]
    first: list[Optional[Embedding[2]]]
    at: datetime

    @pipeline
    @inputs(Item)
    def by_shop(cls, items: Dataset):
        window = Continuous("forever")
        return items.groupby("shop").aggregate(
            last=LastK(of="vector", limit=2, dedup=True, dropnull=True, window=window),
            first=FirstK(of="vector", limit=3, dedup=False, dropnull=False, window=window),
        )


def test_embeddings_of_rows_that_are_replaced(tmp_path: Path) -> None:
    vectors = [(1, [0.5, 1.0]), (2, [2.0, 3.0]), (3, None), (1, [2.0, 3.0]), (2, None)]
    rows = [
        {"item": item, "shop": "a", "vector": vector, "at": JAN + timedelta(minutes=n)}
        for n, (item, vector) in enumerate(vectors)
    ]
    client = MockClient()
    client.commit("items", datasets=[Item, Shop])
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit([Item, Shop])
    for each in rows:
        client.log("web", "items", pd.DataFrame([each]))
        deployed.log("items", [each])
        drain(deployed.deployment)
    at = [JAN + timedelta(minutes=n) for n in range(len(rows))]
    local, _ = client.lookup(Shop, pd.DataFrame({"shop": ["a"] * len(rows)}), timestamps=pd.Series(at))
    served = deployed.lookup("Shop", [{"shop": "a"}] * len(rows), at)
    one, two = [0.5, 1.0], [2.0, 3.0]
    last = [[one], [two, one], [two, one], [two], [two]]
    first = [[one], [one, two], [one, two, None], [two, None, two], [None, two, None]]
    assert [each["last"] for each in served] == local["last"].tolist() == last
    assert [each["first"] for each in served] == first
    assert [[None if value is pd.NA else value for value in each] for each in local["first"]] == first
    deployed.close()
