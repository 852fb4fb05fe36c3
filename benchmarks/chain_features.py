"""The definitions of the chain benchmark: events of a collector, transformed, summed up per user, and a feature."""

from __future__ import annotations

import os
from datetime import datetime

from umbel import Continuous, Count, F, Sum, dataset, featureset, field, index, inputs, pipeline, source
from umbel.connectors import Collector
from umbel.transform import loads

__owner__ = "benchmarks@example.com"

CONFIG = loads("""
source_field: user
target_field: user
---
source_field: amount
target_field: amount
transformations:
  - {name: cast, type: float}
---
source_field: kind
target_field: kind
transformations:
  - {name: lower}
---
source_field: sent_at
target_field: at
---
source_field: page.url
target_field: product
transformations:
  - {name: regex_extract, pattern: '/p/(\\d+)', group: 1}
  - {name: cast, type: int}
""")
FOLDER = os.environ.get("BENCHMARK_COLLECTOR", "collected")


@source(Collector(name="edge", folder=FOLDER).stream("clicks"), disorder="1h", cdc="append", transform=CONFIG)
@dataset
class Click:
    """A click, transformed."""

    user: str
    amount: float
    kind: str
    product: int
    at: datetime


@index
@dataset
class Spending:
    """The clicks of a user, and their amounts."""

    user: str = field(key=True)
    clicks: int
    spent: float
    at: datetime

    @pipeline
    @inputs(Click)
    def by_user(cls, clicks):  # type: ignore[no-untyped-def]
        """Count them and sum them up over an hour."""
        window = Continuous("1h")
        return clicks.groupby("user").aggregate(clicks=Count(window=window), spent=Sum(of="amount", window=window))


@featureset
class User:
    """A user."""

    user: str
    clicks: int = F(Spending.clicks, default=0)
    spent: float = F(Spending.spent, default=0.0)
