"""The job of the write path as a user of umbel declares it: payments from abroad, counted and summed per user."""

from __future__ import annotations

import os
from datetime import datetime

from umbel.connectors import Files, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.lib import inputs

__owner__ = "benchmarks@example.com"

files = Files(name="transactions", folder=os.environ.get("TRANSACTIONS", "benchmarks/.data"))


@source(files.path("*.ndjson"), disorder="1d", cdc="append", every="1s")
@dataset
class Transaction:
    """A card payment."""

    uid: int
    amount: float
    country: str
    payment_country: str
    ts: datetime


@dataset(index=True)
class Abroad:
    """Payments of a user from abroad."""

    uid: int = field(key=True)
    count_1d: int
    sum_1d: float
    count_7d: int
    sum_7d: float
    count_forever: int
    sum_forever: float
    ts: datetime

    @pipeline
    @inputs(Transaction)
    def counted(cls, transactions):  # type: ignore[no-untyped-def]
        """Count and sum over a day, seven days, forever."""
        abroad = transactions.filter(col("country") != col("payment_country"))
        windows = ("1d", "7d", "forever")
        counts = {f"count_{each}": Count(window=Continuous(each)) for each in windows}
        sums = {f"sum_{each}": Sum(of="amount", window=Continuous(each)) for each in windows}
        return abroad.groupby("uid").aggregate(**counts, **sums)
