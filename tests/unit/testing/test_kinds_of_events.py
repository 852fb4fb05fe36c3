"""One endpoint with events of several kinds, of which each dataset takes its own by `where`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Optional

import pandas as pd
import pytest

from tests.deployed import Deployed
from umbel.connectors import Webhook, eval, source
from umbel.datasets import dataset
from umbel.errors import InvalidValue
from umbel.expr import col
from umbel.runtime.batch import drain
from umbel.testing import MockClient

__owner__ = "shop@example.com"
ENDPOINT = Webhook(name="web").endpoint("events")


@source(ENDPOINT, disorder="1d", cdc="append", where=eval(col("kind") == "buy", schema={"kind": str}))
@dataset
class Buy:
    price: float
    at: datetime


@source(ENDPOINT, disorder="1d", cdc="append", where=lambda events: events["kind"] == "visit")
@dataset
class Visit:
    page: str
    price: Optional[int]
    at: datetime


@source(ENDPOINT, disorder="1d", cdc="append", where=eval(col("price") > 10))
@dataset
class Large:
    price: float
    at: datetime


AT = "2026-03-01T00:00:00Z"
EVENTS = [
    {"kind": "buy", "price": 12.5, "at": AT},
    {"kind": "visit", "page": "home", "at": AT},
    {"kind": "login", "user": "ann"},
    {"kind": "buy", "price": 2.5, "page": 7, "at": AT},
]
WRONG: dict[str, Any] = {"kind": "buy", "price": "free", "at": AT}
EXPECTED = {"Buy": [2.5, 12.5], "Visit": [None], "Large": [12.5]}


def test_in_process() -> None:
    client = MockClient()
    client.commit("test", datasets=[Buy, Visit, Large])
    client.log("web", "events", pd.DataFrame(EVENTS))
    for name, expected in EXPECTED.items():
        assert (
            client.get_dataset_df(name)["price"].sort_values().astype(object).where(pd.notna, None).tolist() == expected
        )
    with pytest.raises(InvalidValue, match=r"insertion to Buy: column 'price' .* \(row 0\)"):
        client.log("web", "events", pd.DataFrame([WRONG]))


def test_by_a_server(tmp_path: Path) -> None:
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit([Buy, Visit, Large])
    deployed.log("events", [*EVENTS, WRONG])
    drain(deployed.deployment)
    assert {name: deployed.changes(name)["price"].to_list() for name in EXPECTED} == EXPECTED
    assert deployed.deployment.catalog.count_dead() == {"Buy": 1, "Large": 1}
    deployed.close()
