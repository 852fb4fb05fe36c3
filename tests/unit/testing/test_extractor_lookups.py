"""`Dataset.lookup` in extractors."""

from datetime import datetime, timezone
from typing import Optional

import pandas as pd
import pytest

from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, regex
from umbel.errors import UmbelError
from umbel.featuresets import extractor, feature, featureset
from umbel.lib import inputs, meta, outputs
from umbel.testing import MockClient, mock

__owner__ = "team@example.com"

webhook = Webhook(name="w")

JAN1 = datetime(2024, 1, 1, tzinfo=timezone.utc)


@meta(description="All users", tags=["pii"])
@source(webhook.endpoint("User"), disorder="14d", cdc="upsert")
@dataset(version=2, history="1y", index=True)
class User:
    # Who it is.
    # In two lines.
    uid: int = field(key=True, erase_key=True).meta(tags=["id"])
    name: str  # not this
    # overridden
    email: Optional[regex(".*@.*")] = field().meta(description="where mail goes")

    updated_at: datetime = field(timestamp=True)
    created_at: datetime


@featureset
class Features:
    uid: int = feature()
    name: str = feature()
    found: bool = feature()

    @extractor(deps=[User])
    @inputs("uid")
    @outputs("name", "found")
    def by_lookup(cls, ts: pd.Series, uid: pd.Series):
        rows, found = User.lookup(ts, uid=uid, fields=["name"])
        assert list(rows.columns) == ["name"]
        every, found2 = User.lookup(ts, uid=uid)
        assert list(every.columns) == ["uid", "name", "email", "updated_at", "created_at"]
        assert isinstance(found, pd.Series)
        assert list(every.index) == list(range(len(uid)))
        assert str(every["uid"].dtype) == "Int64"
        assert found.tolist() == found2.tolist()
        return pd.DataFrame({"name": rows["name"].fillna("?"), "found": found})


@mock
def test_lookup_in_extractors(client: MockClient) -> None:
    client.commit("m", [User], [Features])
    client.log("w", "User", pd.DataFrame({
        "uid": [1, 1], "name": ["a", "b"], "email": [None, "x@y"], "updated_at": [JAN1, datetime(2024, 1, 3)],
        "created_at": [JAN1, JAN1],
    }))  # fmt: skip
    df = client.query(
        outputs=[Features.name, Features.found],
        inputs=[Features.uid],
        input_dataframe=pd.DataFrame({"Features.uid": [2, 1]}),
    )
    assert df["Features.name"].tolist() == ["?", "b"]
    assert df["Features.found"].tolist() == [False, True]
    df = client.query_offline(
        outputs=[Features], inputs=["Features.uid"], timestamp_column="at",
        input_dataframe=pd.DataFrame({"Features.uid": [1, 1], "at": [datetime(2024, 1, 2), datetime(2023, 1, 1)]}),
    )  # fmt: skip
    assert df["Features.name"].tolist() == ["a", "?"]
    assert list(df.columns) == ["Features.uid", "Features.name", "Features.found", "at"]


@source(webhook.endpoint("Paid"), disorder="14d", cdc="append")
@dataset
class Paid:
    uid: int
    cents: int
    t: datetime


@dataset(index=True)
class Totals:
    uid: int = field(key=True)
    n: int
    total: int
    t: datetime

    @pipeline
    @inputs(Paid)
    def summed(cls, paid: Dataset):
        ever = Continuous("forever")
        return paid.groupby("uid").aggregate(n=Count(window=ever), total=Sum(of="cents", window=ever))


@featureset
class Paying:
    uid: int
    n: Optional[int] = feature(Totals.n)
    total: Optional[int] = feature(Totals.total)
    seen: int

    @extractor(deps=[Totals])
    @inputs("uid")
    @outputs("seen")
    def by_lookup(cls, ts: pd.Series, uid: pd.Series):
        return Totals.lookup(ts, uid=uid, fields=["n"])[0]["n"].rename("seen")


@mock
def test_a_sum_that_does_not_fit_stops_no_other_field(client: MockClient) -> None:
    client.commit("m", [Paid, Totals], [Paying])
    client.log("w", "Paid", pd.DataFrame({"uid": [1, 1, 2], "cents": [2**63 - 1, 1, 5], "t": JAN1}))
    keys = pd.DataFrame({"uid": [1, 2]})
    queried = keys.add_prefix("Paying.")
    assert client.query(["Paying.uid"], ["Paying.n", "Paying.seen"], queried).to_numpy().tolist() == [[2, 2], [1, 1]]
    assert client.lookup(Totals, keys, ["n"])[0].tolist() == [2, 1]
    for request in (
        lambda: client.query(["Paying.uid"], ["Paying.n", "Paying.total"], queried),
        lambda: client.lookup(Totals, keys),
    ):
        with pytest.raises(UmbelError, match="the sum of 'cents' does not fit int"):
            request()
