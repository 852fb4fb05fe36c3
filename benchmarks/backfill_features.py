"""The datasets of the backfill benchmark: payments, and two datasets that are computed from them in the same way."""

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

files = Files(name="payments", folder=os.environ.get("BACKFILL_DATA", "benchmarks/.data"))


@source(files.path("*.parquet", format="parquet"), disorder="1d", cdc="append", every="1s")
@dataset
class Transaction:
    """A card payment."""

    uid: int
    amount: float
    country: str
    payment_country: str
    ts: datetime


def _abroad(name: str, is_abroad: Any) -> Any:
    """Return a dataset with the payments of a user from abroad, of a day and of all time."""

    @pipeline
    @inputs(Transaction)
    def counted(cls: Any, transactions: Any) -> Any:
        abroad = transactions.filter(is_abroad)
        return abroad.groupby("uid").aggregate(
            count_1d=Count(window=Continuous("1d")),
            sum_1d=Sum(of="amount", window=Continuous("1d")),
            count=Count(window=Continuous("forever")),
            sum=Sum(of="amount", window=Continuous("forever")),
        )

    annotations = {"uid": int, "count_1d": int, "sum_1d": float, "count": int, "sum": float, "ts": datetime}
    members = {"__module__": __name__, "__annotations__": annotations, "uid": field(key=True), "counted": counted}
    return dataset(index=True)(type(name, (), members))


Live = _abroad("Live", col("country") != col("payment_country"))
New = _abroad("New", col("payment_country") != col("country"))
"""The same values, by operators of their own: what two datasets have in common is computed once."""
