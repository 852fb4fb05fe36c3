"""Lookups of keys that an aggregation has not seen, whatever its windows (defaults fill in, `found` stays False)."""

from datetime import date, datetime, timedelta, timezone

import pandas as pd
import pytest

from umbel.connectors import Webhook, source
from umbel.datasets import Average, Count, Dataset, LastK, Max, Min, Stddev, dataset, field, pipeline
from umbel.dtypes import Continuous, Hopping, Tumbling
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "team@example.com"
T = datetime(2024, 1, 1, tzinfo=timezone.utc)
WINDOWS = [Continuous("1h"), Tumbling("1h"), Hopping("2h", "1h"), Hopping("forever", "1h")]


@source(Webhook(name="w").endpoint("A"), disorder="14d", cdc="append")
@dataset
class A:
    k: int
    v: float
    d: date
    t: datetime


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("copies", [1, 300], ids=["few", "many"])
def test_defaults(window: Continuous | Tumbling | Hopping, copies: int) -> None:
    @dataset(index=True)
    class B:
        k: int = field(key=True)
        n: int
        mean: float
        spread: float
        low: float
        first: date
        high: float | None
        last: list[float]
        t: datetime

        @pipeline
        @inputs(A)
        def p(cls, a: Dataset):
            return a.groupby("k").aggregate(
                n=Count(window=window),
                mean=Average(of="v", window=window),
                spread=Stddev(of="v", window=window),
                low=Min(of="v", default=7.5, window=window),
                first=Min(of="d", default=date(1999, 9, 9), window=window),
                high=Max(of="v", window=window),
                last=LastK(of="v", limit=1, dedup=False, window=window),
            )

    client = MockClient()
    client.commit(message="m", datasets=[A, B])
    hours = [T, T + timedelta(hours=1, seconds=5)]
    client.log("w", "A", pd.DataFrame({"k": [1, 2], "v": [3.0, 4.0], "d": [date(2020, 1, 1)] * 2, "t": hours}))
    keys = [1, 1, 3] * copies
    instants = [T - timedelta(hours=3), T + timedelta(hours=1), T + timedelta(hours=1)] * copies
    rows, found = client.lookup(B, pd.DataFrame({"k": keys}), timestamps=pd.Series(instants))
    unseen = [pd.NA, 0.0, -1.0, 7.5, date(1999, 9, 9), pd.NA, pd.NA]
    names = ["n", "mean", "spread", "low", "first", "high", "last"]
    assert found.tolist() == [False, True, False] * copies
    assert rows[names].iloc[0].tolist() == rows[names].iloc[-1].tolist() == unseen
    assert rows[names].iloc[1].tolist() == [1, 3.0, 0.0, 3.0, date(2020, 1, 1), 3.0, [3.0]]
