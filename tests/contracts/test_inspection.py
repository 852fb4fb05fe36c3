"""A mock client inspects datasets as a server does, also those whose values depend on the instant."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

from tests.contracts.transport_shop import ORDERS, Orders, Platform, mocked, served_at
from umbel.client import Client
from umbel.datasets import Count, Dataset, ExpDecaySum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs

__owner__ = "tests@example.com"


@dataset(index=True)
class Recent:
    uid: int = field(key=True)
    orders: int
    lately: int
    decayed: float
    t: datetime

    @pipeline
    @inputs(Orders)
    def sum_up(cls, orders: Dataset):
        return orders.groupby("uid").aggregate(
            orders=Count(window=Continuous("forever")),
            lately=Count(window=Continuous("1h")),
            decayed=ExpDecaySum(of="amount", window=Continuous("forever"), half_life="100000d"),
        )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    now = datetime.now(UTC) - timedelta(minutes=1)
    rows = pd.concat([ORDERS, pd.DataFrame({"uid": [3], "amount": [4.0], "t": [now]})])

    def filled(platform: Platform) -> Client:
        platform.client.commit(message="m", datasets=[Orders, Recent])
        platform.client.log("shop", "orders", rows)
        platform.settle()
        return platform.client

    for served in served_at(tmp_path_factory.mktemp("served") / "umbel"):
        yield filled(served), filled(mocked())


@pytest.mark.parametrize("n", [0, 1, 2, 10])
def test_values_are_those_of_now(both: tuple[Client, Client], n: int) -> None:
    served, local = (client.inspect("Recent", n) for client in both)
    pd.testing.assert_frame_equal(served, local, rtol=1e-6)
    assert set(local["uid"]) == set([3, 1, 2][:n])
    assert local.set_index("uid")["lately"].to_dict() == {uid: int(uid == 3) for uid in local["uid"]}
    assert (local["decayed"] > 1).all()
