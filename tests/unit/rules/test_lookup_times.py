"""The timestamp of a looked-up row is that of the row, not of the question: also of values over continuous windows."""

from datetime import datetime, timedelta, timezone
from typing import Any, Optional

import pandas as pd
import pytest

from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Continuous, struct
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs
from umbel.testing import MockClient

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
