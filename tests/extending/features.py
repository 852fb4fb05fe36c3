"""A program that uses one thing of each kind from `umbel-extras`. `JOURNAL` in the environment is the folder of its source."""

from __future__ import annotations

import os
from datetime import datetime

from umbel_extras.aggregates import SumOfSquares
from umbel_extras.connectors import Journal
from umbel_extras.operators import Limit

from umbel.connectors import source
from umbel.datasets import Dataset, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.lib import inputs

__owner__ = "tests@example.com"
journal = Journal(name="journal", folder=os.environ.get("JOURNAL", "."))


@source(journal.file("orders.jsonl"), disorder="1d", cdc="append", every="1s")
@dataset
class Order:
    user: int
    amount: float
    at: datetime


@index
@dataset
class Spending:
    user: int = field(key=True)
    squares: float
    at: datetime

    @pipeline
    @inputs(Order)
    def aggregate(cls, orders: Dataset):
        clipped = orders.clip(column="amount", limit=Limit(100.0))
        taxed = clipped.assign(taxed=col("amount").money.with_tax(percent=50).astype(float))
        return taxed.groupby("user").aggregate(squares=SumOfSquares(of="taxed", window=Continuous("forever")))


@featureset
class User:
    user: int
    squares: float = F(Spending.squares, default=0.0)
    gross: float = F(col("squares").money.with_tax())
