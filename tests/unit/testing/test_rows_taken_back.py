"""Rows without keys that a source takes back are gone from tables, choices and values with rows in their state."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.deployed import Deployed
from umbel.connectors import Webhook, source
from umbel.datasets import Count, LastK, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.runtime.batch import drain
from umbel.testing import MockClient

__owner__ = "shop@example.com"


@source(Webhook(name="web").endpoint("bids"), disorder="1d", cdc="debezium")
@dataset
class Bid:
    item: int
    price: int
    at: datetime


@index
@dataset
class Bids:
    item: int = field(key=True)
    last: list[int]
    at: datetime

    @pipeline
    @inputs(Bid)
    def listed(cls, bids):
        return bids.groupby("item").aggregate(
            last=LastK(of="price", limit=3, dedup=False, window=Continuous("forever"))
        )


@index
@dataset
class Hourly:
    item: int = field(key=True)
    bids: int
    at: datetime

    @pipeline
    @inputs(Bid)
    def counted(cls, bids):
        return bids.groupby("item").aggregate(bids=Count(window=Continuous("1h")))


@index
@dataset
class Newest:
    item: int = field(key=True)
    price: int
    at: datetime

    @pipeline
    @inputs(Bid)
    def chosen(cls, bids):
        return bids.groupby("item").latest()


def bid(price: int, minute: int) -> dict[str, Any]:
    return {"item": 1, "price": price, "at": f"2024-05-01T10:{minute:02}:00Z"}


def message(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "ts_ms": 1714561200000}  # 11:00


MESSAGES = [message("c", None, bid(price, minute)) for price, minute in ((5, 0), (7, 10), (9, 20))]
MESSAGES += [message("d", bid(9, 20), None), message("u", bid(7, 10), bid(6, 10))]
DATASETS: list[Any] = [Bid, Bids, Newest]


@pytest.mark.parametrize("size", [1, 2, len(MESSAGES)])
def test_in_batches_of_any_size(size: int) -> None:
    client = MockClient()
    client.commit("bids", datasets=DATASETS)
    for start in range(0, len(MESSAGES), size):
        client.log("web", "bids", pd.DataFrame(MESSAGES[start : start + size]))
    keys = pd.DataFrame({"item": [1]})
    assert client.lookup(Bids, keys, ["last"])[0][0] == [6, 5]
    assert client.lookup(Newest, keys, ["price"])[0][0] == 6
    assert client.get_dataset_df("Bid")["price"].tolist() == [5, 6]


def test_in_a_deployment(tmp_path: Path) -> None:
    deployed = Deployed(tmp_path)
    deployed.commit(DATASETS)
    for each in MESSAGES:
        deployed.log("bids", [each])
        drain(deployed.deployment)
    at = [datetime(2024, 5, 2, tzinfo=UTC)]
    assert deployed.lookup("Bids", [{"item": 1}], at)[0]["last"] == [6, 5]
    assert deployed.lookup("Newest", [{"item": 1}], at)[0]["price"] == 6
    place = deployed.deployment
    node = place.graph(place.catalog.revision()).outputs["Bid"]
    assert place.changes.newest(node, 10)["price"].to_list() == [5, 6]
    deployed.close()


def test_within_a_tile_that_an_instant_cuts(tmp_path: Path) -> None:
    """The value is completed from history, where the deletions are later than the rows of the tile."""
    deployed = Deployed(tmp_path)
    deployed.commit([Bid, Hourly])
    made = [{"item": 1, "price": n, "at": f"2024-05-01T10:00:{n:02}Z"} for n in range(36)]
    deployed.log("bids", [message("c", None, each) for each in made])
    drain(deployed.deployment)
    deployed.log("bids", [message("d", each, None) for each in made[::2]])
    drain(deployed.deployment)
    deployed.flush_logs()
    found = deployed.lookup("Hourly", [{"item": 1}], [datetime(2024, 5, 1, 10, 0, 20, tzinfo=UTC)])
    assert found[0]["bids"] == 10
    deployed.close()
