"""Datasets and features the tests of the mock client share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Optional

import pandas as pd

from umbel.connectors import Webhook, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs
from umbel.testing import MockClient

__owner__ = "test@umbel.dev"

JAN = datetime(2024, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
webhook = Webhook(name="hook")


@source(webhook.endpoint("users"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Users:
    uid: int = field(key=True, erase_key=True)
    name: str
    age: Optional[int]
    t: datetime


@source(webhook.endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visits:
    uid: int
    n: int
    t: datetime


@dataset(index=True)
class Visited:
    uid: int = field(key=True)
    total: int
    recent: int
    t: datetime

    @pipeline
    @inputs(Visits)
    def count(cls, visits):
        return visits.groupby("uid").aggregate(
            total=Sum(of="n", window=Continuous("forever")), recent=Count(window=Continuous("1d"))
        )


@featureset
class User:
    uid: int
    name: str = F(Users.name, default="?")
    age: Optional[int] = F(Users.age)
    total: int = F(Visited.total, default=0)
    shout: str

    @extractor(deps=[Users])
    @inputs("uid")
    @outputs("shout")
    def shouted(cls, ts, uid):
        rows, _ = Users.lookup(ts, uid=uid, fields=["name"])
        return rows["name"].fillna("nobody").str.upper().rename("shout")


DATASETS = [Users, Visits, Visited]
ROWS = pd.DataFrame(
    {"uid": [1, 1, 2], "name": ["ann", "anna", "bob"], "age": [30, 31, None], "t": [JAN, JAN + DAY, JAN]}
)
VISITS = pd.DataFrame({"uid": [1, 1, 2], "n": [1, 2, 5], "t": [JAN, JAN + HOUR, JAN]})


def committed():
    """Return a client with everything committed."""
    client = MockClient()
    response = client.commit(message="all", datasets=DATASETS, featuresets=[User])
    assert (response.status_code, response.ok) == (200, True)
    return client


def users(client, *uids, **options):
    frame = pd.DataFrame({"User.uid": list(uids)})
    return client.query(inputs=[User.uid], outputs=[User], input_dataframe=frame, **options)
