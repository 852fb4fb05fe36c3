"""What the benchmark of training sets asks for: fifty windowed features over ten datasets of events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from umbel.connectors import Webhook, source
from umbel.datasets import Average, Count, Max, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.lib import inputs

__owner__ = "benchmarks@example.com"

DATASETS = 10
COLUMNS = ("count_1h", "sum_1d", "mean_7d", "max_30d", "sum_forever")

webhook = Webhook(name="training")


def _events(number: int) -> Any:
    annotations = {"uid": int, "amount": float, "at": datetime}
    made = dataset(type(f"Event{number}", (), {"__module__": __name__, "__annotations__": annotations}))
    return source(webhook.endpoint(f"events{number}"), disorder="14d", cdc="append")(made)


def _windows(number: int) -> Any:
    @pipeline
    @inputs(EVENTS[number])
    def aggregated(cls: Any, events: Any) -> Any:
        return events.groupby("uid").aggregate(
            count_1h=Count(window=Continuous("1h")),
            sum_1d=Sum(of="amount", window=Continuous("1d")),
            mean_7d=Average(of="amount", window=Continuous("7d"), default=-1.0),
            max_30d=Max(of="amount", window=Continuous("30d"), default=-1.0),
            sum_forever=Sum(of="amount", window=Continuous("forever")),
        )

    annotations = {
        "uid": int,
        "count_1h": int,
        **dict.fromkeys(COLUMNS[1:], float),
        "at": datetime,
    }
    members = {"__module__": __name__, "__annotations__": annotations, "uid": field(key=True), "aggregated": aggregated}
    return dataset(index=True)(type(f"Window{number}", (), members))


EVENTS = [_events(number) for number in range(DATASETS)]
WINDOWS = [_windows(number) for number in range(DATASETS)]


def _features() -> Any:
    named = {f"{column}_{number}": (each, column) for number, each in enumerate(WINDOWS) for column in COLUMNS}
    kinds = {name: int if column == "count_1h" else float for name, (_, column) in named.items()}
    defaults = {
        name: -1.0 if column in {"mean_7d", "max_30d"} else kinds[name](0) for name, (_, column) in named.items()
    }
    features = {name: F(getattr(each, column), default=defaults[name]) for name, (each, column) in named.items()}
    members = {"__module__": __name__, "__annotations__": {"uid": int, **kinds}, "uid": F(), **features}
    return featureset(type("Training", (), members))


Training = _features()
