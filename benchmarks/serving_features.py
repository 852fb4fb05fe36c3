"""What the serving benchmark asks for: 20 features over 4 windowed datasets, each with a key of its own.

`SERVING_DATA` is the folder of the events.
"""

from __future__ import annotations

import os
from datetime import datetime

from umbel.connectors import Files, source
from umbel.datasets import Average, Count, Dataset, Max, Min, Stddev, Sum, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.lib import inputs

__owner__ = "bench@example.com"

files = Files(name="payments", folder=os.environ.get("SERVING_DATA", "benchmarks/.data/serving"))


@source(files.path("*.parquet", format="parquet"), disorder="1d", cdc="append")
@dataset
class Payment:
    """A payment."""

    user: int
    card: int
    merchant: int
    device: str
    amount: float
    at: datetime


@index
@dataset
class ByUser:
    """What a user has paid of late."""

    user: int = field(key=True)
    count: int
    total: float
    mean: float
    count_week: int
    total_week: float
    at: datetime

    @pipeline
    @inputs(Payment)
    def aggregated(cls, payments: Dataset):  # type: ignore[no-untyped-def]
        return payments.groupby("user").aggregate(
            count=Count(window=Continuous("1d")),
            total=Sum(of="amount", window=Continuous("1d")),
            mean=Average(of="amount", window=Continuous("1d")),
            count_week=Count(window=Continuous("7d")),
            total_week=Sum(of="amount", window=Continuous("7d")),
        )


@index
@dataset
class ByCard:
    """What a card has paid of late."""

    card: int = field(key=True)
    count: int
    total: float
    largest: float
    spread: float
    count_ever: int
    at: datetime

    @pipeline
    @inputs(Payment)
    def aggregated(cls, payments: Dataset):  # type: ignore[no-untyped-def]
        return payments.groupby("card").aggregate(
            count=Count(window=Continuous("6h")),
            total=Sum(of="amount", window=Continuous("6h")),
            largest=Max(of="amount", default=0.0, window=Continuous("7d")),
            spread=Stddev(of="amount", window=Continuous("7d")),
            count_ever=Count(window=Continuous("forever")),
        )


@index
@dataset
class ByMerchant:
    """What a merchant has taken of late."""

    merchant: int = field(key=True)
    count: int
    mean: float
    smallest: float
    total: float
    total_ever: float
    at: datetime

    @pipeline
    @inputs(Payment)
    def aggregated(cls, payments: Dataset):  # type: ignore[no-untyped-def]
        return payments.groupby("merchant").aggregate(
            count=Count(window=Continuous("1d")),
            mean=Average(of="amount", window=Continuous("1d")),
            smallest=Min(of="amount", default=0.0, window=Continuous("1d")),
            total=Sum(of="amount", window=Continuous("7d")),
            total_ever=Sum(of="amount", window=Continuous("forever")),
        )


@index
@dataset
class ByDevice:
    """What was paid from a device of late."""

    device: str = field(key=True)
    count: int
    total: float
    count_day: int
    total_day: float
    mean_week: float
    at: datetime

    @pipeline
    @inputs(Payment)
    def aggregated(cls, payments: Dataset):  # type: ignore[no-untyped-def]
        return payments.groupby("device").aggregate(
            count=Count(window=Continuous("1h")),
            total=Sum(of="amount", window=Continuous("1h")),
            count_day=Count(window=Continuous("1d")),
            total_day=Sum(of="amount", window=Continuous("1d")),
            mean_week=Average(of="amount", window=Continuous("7d")),
        )


@featureset
class Risk:
    """What a payment is judged by."""

    user: int
    card: int
    merchant: int
    device: str
    user_count: int = F(ByUser.count, default=0)
    user_total: float = F(ByUser.total, default=0.0)
    user_mean: float = F(ByUser.mean, default=0.0)
    user_count_week: int = F(ByUser.count_week, default=0)
    user_total_week: float = F(ByUser.total_week, default=0.0)
    card_count: int = F(ByCard.count, default=0)
    card_total: float = F(ByCard.total, default=0.0)
    card_largest: float = F(ByCard.largest, default=0.0)
    card_spread: float = F(ByCard.spread, default=-1.0)
    card_count_ever: int = F(ByCard.count_ever, default=0)
    merchant_count: int = F(ByMerchant.count, default=0)
    merchant_mean: float = F(ByMerchant.mean, default=0.0)
    merchant_smallest: float = F(ByMerchant.smallest, default=0.0)
    merchant_total: float = F(ByMerchant.total, default=0.0)
    merchant_total_ever: float = F(ByMerchant.total_ever, default=0.0)
    device_count: int = F(ByDevice.count, default=0)
    device_total: float = F(ByDevice.total, default=0.0)
    device_count_day: int = F(ByDevice.count_day, default=0)
    device_total_day: float = F(ByDevice.total_day, default=0.0)
    device_mean_week: float = F(ByDevice.mean_week, default=0.0)
