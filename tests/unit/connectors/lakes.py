"""Datasets that are read from the table `orders` of a lake, by its changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.connectors import shop_datasets
from tests.connectors.shop_datasets import orders
from tests.deployed import Deployed
from umbel.connectors import source
from umbel.datasets import dataset

__owner__ = "shop@example.com"


def keyed(lake: Any, **options: Any) -> Any:
    """Return a keyed dataset of the orders, which follows their changes."""
    return orders(lake, **{"cdc": "native", "every": "1s", "disorder": "60d", **options})


def keyless(lake: Any) -> Any:
    """Return a keyless dataset of the orders, which has their inserts."""

    @source(lake.table("orders"), disorder="60d", cdc="native", every="1s")
    @dataset
    class Copies:
        id: int
        note: str
        updated_at: datetime

    return Copies


def until(made: Deployed, condition: Callable[[], Any]) -> None:
    """Run batches until a condition is true."""
    shop_datasets.until(made, condition, 60)


def is_forgotten(made: Deployed, part: int) -> bool:
    """Return whether a staged part is not there any more."""
    (reading,) = (each.reading for each in made.deployment._sources()[1])
    return part not in reading.stage.numbers()
