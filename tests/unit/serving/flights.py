"""What the tests of the server commit: flights, their delays by origin, planes by tail number."""

from __future__ import annotations

from datetime import datetime
from typing import Optional

import pandas as pd

from umbel.connectors import Webhook, source
from umbel.datasets import Average, Count, Dataset, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs, secrets

__owner__ = "tests@example.com"
webhook = Webhook(name="events")


@source(webhook.endpoint("departures"), disorder="1d", cdc="append")
@dataset
class Departure:
    origin: str
    delay: int
    ratio: Optional[float]
    at: datetime


@source(webhook.endpoint("planes"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Plane:
    tailnum: str = field(key=True)
    seats: int
    at: datetime


@index
@dataset
class DelayOfOrigin:
    origin: str = field(key=True)
    departures: int
    average: float
    at: datetime

    @pipeline
    @inputs(Departure)
    def aggregate(cls, departures: Dataset):
        return departures.groupby("origin").aggregate(
            departures=Count(window=Continuous("6h")), average=Average(of="delay", window=Continuous("6h"))
        )


@featureset
class Origin:
    origin: str
    departures: int = F(DelayOfOrigin.departures, default=0)
    average: float = F(DelayOfOrigin.average, default=0.0)
    is_late: bool = F(col("average") > 15.0)


@featureset
class Greeting:
    name: str
    text: str

    @extractor
    @inputs("name")
    @outputs("text")
    def greeted(cls, ts: pd.Series, names: pd.Series):
        if (names == "nobody").any():
            raise ValueError("nobody is not somebody")
        return (names + secrets.get("mark")).rename("text")


DATASETS = [Departure, Plane, DelayOfOrigin]
FEATURESETS = [Origin, Greeting]
