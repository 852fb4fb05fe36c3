"""The timestamp of a looked-up row is that of the row, not of the question: also of values over continuous windows."""

from datetime import date, datetime, timedelta, timezone
from typing import Any, Optional

import pandas as pd
import pytest

from umbel.connectors import Webhook, source
from umbel.datasets import Average, Count, Dataset, LastK, Max, Min, Stddev, dataset, field, pipeline
from umbel.dtypes import Continuous, Hopping, Tumbling, struct
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs
from umbel.testing import MockClient, mock

__owner__ = "team@example.com"
T = datetime(2024, 1, 1, tzinfo=timezone.utc)


def hour(hours: float) -> datetime:
    return T + timedelta(hours=hours)


@struct
class Pair:
    a: int
    b: str


KEYS: dict[str, tuple[Any, list[Any]]] = {
    "int": (int, [1, 2]),
    "struct": (Pair, [Pair(1, "x"), Pair(1, "y")]),
    "list": (list[int], [[1], []]),
}


def declared(annotation: Any) -> tuple[Any, Any, Any]:
    @source(Webhook(name="w").endpoint("A"), disorder="14d", cdc="append")
    @dataset
    class A:
        k: annotation
        t: datetime

    @dataset(index=True)
    class B:
        k: annotation = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(A)
        def p(cls, a: Dataset):
            return a.groupby("k").aggregate(n=Count(window=Continuous("3h")))

    @featureset
    class FS:
        k: annotation
        n: int = F(B.n, default=-1)
        since: Optional[datetime] = F(B.t)
        age: Optional[float]

        @extractor(deps=[B])
        @inputs("k")
        @outputs("age")
        def age_of(cls, ts, k):
            rows, _ = B.lookup(ts, k=k)
            return ((ts - rows["t"]).dt.total_seconds() / 3600).rename("age")

    return A, B, FS


@pytest.mark.parametrize("kind", KEYS)
def test_every_way_to_look_up(kind: str) -> None:
    annotation, (one, other) = KEYS[kind]
    A, B, FS = declared(annotation)
    client = MockClient()
    client.commit(message="m", datasets=[A, B], featuresets=[FS])
    client.log("w", "A", pd.DataFrame({"k": [one, one], "t": [hour(0), hour(2)]}))
    requested = [hour(1), hour(2.5), hour(9), hour(-1), hour(2.5)]
    keys = [one, one, one, one, other]
    begun = [hour(0), hour(2), hour(5) + timedelta(seconds=1), pd.NaT, pd.NaT]

    rows, found = client.lookup(B, pd.DataFrame({"k": keys}), timestamps=pd.Series(requested))
    assert (rows["t"].tolist(), found.tolist()) == (begun, [True, True, True, False, False])
    assert rows["n"].tolist() == [1, 2, 0, pd.NA, pd.NA]

    report = client.query_offline(
        inputs=[FS.k],
        outputs=[FS.n, FS.since, FS.age],
        timestamp_column="at",
        input_dataframe=pd.DataFrame({"FS.k": keys, "at": requested}),
    )
    assert report["FS.since"].tolist() == begun
    assert report["FS.n"].tolist() == [1, 2, 0, -1, -1]
    assert report["FS.age"].tolist()[:2] == [1.0, 0.5]
    assert report["FS.age"].isna().tolist() == [False, False, False, True, True]

    now = client.query(inputs=[FS.k], outputs=[FS.since], input_dataframe=pd.DataFrame({"FS.k": [one, other]}))
    assert now["FS.since"].tolist() == [begun[2], pd.NaT]


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


webhook = Webhook(name="w")

ROWS = pd.DataFrame({"k": [1, 1, 2], "v": [1, 2, 3], "t": [T, datetime(2024, 1, 2), T]})


def events(version: int = 1, *, extra: bool = False, name: str = "Events") -> Dataset:
    fields = {"k": int, "v": int, "t": datetime} | ({"x": Optional[int]} if extra else {})
    made = type(name, (), {"__annotations__": fields, "__module__": __name__})
    return source(webhook.endpoint("e"), disorder="14d", cdc="append")(dataset(version=version)(made))


def counts(of: Dataset, version: int = 1, bound: int = 0) -> Dataset:
    @dataset(index=True, version=version)
    class Counts:
        k: int = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(of)
        def p(cls, e: Dataset):
            return e.filter(col("v") > bound).groupby("k").aggregate(n=Count(window=Continuous("forever")))

    return Counts


@mock
def test_lookups_tell_since_when(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)])
    client.log("w", "e", ROWS)
    keys = pd.DataFrame({"k": [1, 1, 1, 9, 2]})
    at = pd.Series(["2024-01-01T12:00:00Z", "2024-01-03", "2023-01-01", "2024-01-03", "2024-01-03"])
    rows, found = client.lookup("Counts", keys, timestamps=at)
    assert found.tolist() == [True, True, False, False, True]
    assert rows["n"].tolist() == [1, 2, pd.NA, pd.NA, 1]
    begun = [
        pd.Timestamp("2024-01-01", tz="UTC"),
        pd.Timestamp("2024-01-02", tz="UTC"),
        pd.NaT,
        pd.NaT,
        pd.Timestamp("2024-01-01", tz="UTC"),
    ]
    assert rows["t"].tolist() == begun
    assert client.lookup("Counts", keys[:1])[0]["t"].tolist() == begun[1:2]
    assert client.lookup("Counts", keys[:1], fields=["t"])[0].tolist() == begun[1:2]
