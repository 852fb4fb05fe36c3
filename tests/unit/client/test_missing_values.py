"""Values that are missing by other names than None, as a client sends them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal as Number
from typing import Optional

import pandas as pd

from tests.unit.client.server import Server
from umbel.client import Client
from umbel.connectors import Webhook, source
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal

__owner__ = "test@umbel.dev"

JAN = datetime(2024, 1, 1, tzinfo=UTC)


@source(Webhook(name="hook").endpoint("offers"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Offer:
    uid: int = field(key=True)
    price: Optional[Decimal[2]]
    t: datetime


def test_a_decimal_that_is_no_number_arrives_as_null():
    rows = pd.DataFrame({"uid": [1, 2], "price": [Number("1.50"), Number("NaN")], "t": [JAN, JAN]})
    with Client("http://server/", "token", transport=Server().transport) as client:
        client.commit(message="offers", datasets=[Offer])
        assert client.log("hook", "offers", rows).ok
        found, _ = client.lookup(Offer, pd.DataFrame({"uid": [1, 2]}))
    assert found["price"].tolist() == [Number("1.50"), pd.NA]
