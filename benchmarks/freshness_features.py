"""What the freshness benchmark declares: events by webhook, counted per user."""

from __future__ import annotations

from datetime import datetime

from umbel.connectors import Webhook, source
from umbel.datasets import Count, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs

__owner__ = "benchmarks@example.com"

webhook = Webhook(name="benchmark")


@source(webhook.endpoint("events"), disorder="1h", cdc="append")
@dataset
class Event:
    """Something a user did."""

    uid: int
    at: datetime


@dataset(index=True)
class Events:
    """How often a user did something."""

    uid: int = field(key=True)
    events: int
    at: datetime

    @pipeline
    @inputs(Event)
    def counted(cls, events):  # type: ignore[no-untyped-def]
        """Count them over a day."""
        return events.groupby("uid").aggregate(events=Count(window=Continuous("1d")))
