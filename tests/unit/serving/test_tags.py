"""Tags flow down the lineage, and xray tells them."""

from __future__ import annotations

from datetime import datetime
from typing import Optional

from tests.unit.serving.conftest import Served
from umbel.client import Client
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, dataset, field, pipeline
from umbel.featuresets import feature, featureset
from umbel.lib import inputs, meta

__owner__ = "tests@example.com"
webhook = Webhook(name="events")


@meta(tags=["pii", "old"])
@source(webhook.endpoint("people"), disorder="1d", cdc="append")
@dataset
class Person:
    uid: int
    at: datetime


@meta(tags=["~old", "daily"])
@dataset(index=True)
class Known:
    uid: int = field(key=True)
    at: datetime

    @pipeline
    @inputs(Person)
    def known(cls, people: Dataset):
        return people.groupby("uid").latest()


@featureset
class Fact:
    uid: int
    seen: Optional[datetime] = feature(Known.at).meta(tags=["~daily", "fact"])


def test_xray_tells_inherited_tags(fresh: Served) -> None:
    client = Client("http://umbel", transport=fresh.transport)
    client.commit("tagged", datasets=[Person, Known], featuresets=[Fact])
    shown = client.xray()
    assert [each["tags"] for each in shown["datasets"]] == [["old", "pii"], ["daily", "pii"]]
    assert shown["featuresets"][0]["feature_tags"] == {"uid": [], "seen": ["fact", "pii"]}
