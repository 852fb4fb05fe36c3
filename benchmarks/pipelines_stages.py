"""Pipeline (b): hours of a user, then all hours of a region; a late payment takes back an hour that was counted."""

from __future__ import annotations

import os
from datetime import datetime

from umbel.connectors import Files, source
from umbel.datasets import Count, Max, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, Tumbling, Window
from umbel.lib import inputs

__owner__ = "benchmarks@example.com"

files = Files(name="payments", folder=os.environ.get("PIPELINES_DATA", "benchmarks/.data"))


@source(files.path("events-*.ndjson"), disorder="3d", cdc="append", every="1s")
@dataset
class Payment:
    """A payment."""

    user: int
    region: str
    amount: int
    at: datetime


@dataset(index=True)
class Hour:
    """The payments of a user in an hour."""

    user: int = field(key=True)
    region: str = field(key=True)
    window: Window = field(key=True)
    payments: int
    total: int
    at: datetime

    @pipeline
    @inputs(Payment)
    def hourly(cls, payments):  # type: ignore[no-untyped-def]
        """Count and sum by hour."""
        grouped = payments.groupby("user", "region", window=Tumbling("1h"))
        return grouped.aggregate(payments=Count(), total=Sum(of="amount"))


@dataset(index=True)
class Region:
    """The hours of a region's users."""

    region: str = field(key=True)
    payments: int
    total: int
    largest: int
    at: datetime

    @pipeline
    @inputs(Hour)
    def combined(cls, hours):  # type: ignore[no-untyped-def]
        """Add up the hours, and find the largest."""
        forever = Continuous("forever")
        return hours.groupby("region").aggregate(
            payments=Sum(of="payments", window=forever),
            total=Sum(of="total", window=forever),
            largest=Max(of="total", window=forever, default=0),
        )
