"""What the idle benchmark declares: a webhook's events and 50 pipelines on them, each with a window of its own."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, Sum, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs

__owner__ = "benchmarks@example.com"

PIPELINES = 50


@source(Webhook(name="idle").endpoint("events"), disorder="1d", cdc="append")
@dataset
class Event:
    """Something a user did."""

    user: int
    amount: float
    at: datetime


def counted(hours: int) -> Dataset:
    """Return a dataset of what each user did within so many hours."""

    def aggregated(cls: type, events: Dataset) -> Any:
        window = Continuous(f"{hours}h")
        return events.groupby("user").aggregate(count=Count(window=window), total=Sum(of="amount", window=window))

    fields = {"user": int, "count": int, "total": float, "at": datetime}
    body = {"user": field(key=True), "aggregated": pipeline(inputs(Event)(aggregated))}
    made: Dataset = index(
        dataset(type(f"Counted{hours}", (), {**body, "__annotations__": fields, "__module__": __name__}))
    )
    return made


DATASETS: list[Any] = [Event, *(counted(hours) for hours in range(1, PIPELINES + 1))]
