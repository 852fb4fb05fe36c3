"""Pipeline (e): ten pipelines on one source, each with a filter of its own."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from umbel.connectors import Files, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.lib import inputs

__owner__ = "benchmarks@example.com"

MANY = 10
STEP = 500
"""Pipeline n takes payments of at least n times so much."""

files = Files(name="payments", folder=os.environ.get("PIPELINES_DATA", "benchmarks/.data"))


@source(files.path("events-*.ndjson"), disorder="3d", cdc="append", every="1s")
@dataset
class Payment:
    """A payment."""

    user: int
    region: str
    amount: int
    at: datetime


def _above(number: int) -> Any:
    """Return a dataset of the payments above a bound, by user or by region."""
    key, kind = ("user", int) if number % 2 else ("region", str)

    @pipeline
    @inputs(Payment)
    def counted(cls: Any, payments: Any) -> Any:
        large = payments.filter(col("amount") >= number * STEP)
        day = Continuous("1d")
        return large.groupby(key).aggregate(payments=Count(window=day), total=Sum(of="amount", window=day))

    annotations = {key: kind, "payments": int, "total": int, "at": datetime}
    members = {"__module__": __name__, "__annotations__": annotations, key: field(key=True), "counted": counted}
    return dataset(index=True)(type(f"Above{number}", (), members))


Above0, Above1, Above2, Above3, Above4 = (_above(number) for number in range(5))
Above5, Above6, Above7, Above8, Above9 = (_above(number) for number in range(5, MANY))
