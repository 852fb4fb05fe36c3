"""Totals of floats since ever, emitted hour by hour while what is final is merged: each is retracted as it was emitted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from tests.deployed import Deployed
from umbel.connectors import Webhook, source
from umbel.datasets import Average, Count, Dataset, Stddev, Sum, dataset, field, pipeline
from umbel.dtypes import Hopping
from umbel.lib import inputs
from umbel.runtime.batch import drain

__owner__ = "tests@example.com"
JAN = datetime(2026, 1, 1, tzinfo=UTC)
EVER = Hopping("forever", "1h")


@source(Webhook(name="web").endpoint("readings"), disorder="3h", cdc="append")
@dataset
class Metered:
    meter: int
    value: float
    at: datetime


@dataset
class Totals:
    meter: int = field(key=True)
    total: float
    mean: float
    spread: float
    readings: int
    at: datetime

    @pipeline
    @inputs(Metered)
    def by_meter(cls, metered: Dataset):
        return metered.groupby("meter").aggregate(
            total=Sum(of="value", window=EVER),
            mean=Average(of="value", window=EVER),
            spread=Stddev(of="value", window=EVER),
            readings=Count(window=EVER),
        )


@dataset
class FinalTotals:
    meter: int = field(key=True)
    total: float
    spread: float
    at: datetime

    @pipeline
    @inputs(Metered)
    def by_meter(cls, metered: Dataset):
        return metered.groupby("meter").aggregate(
            total=Sum(of="value", window=EVER), spread=Stddev(of="value", window=EVER), emit="final"
        )


def test_each_total_is_retracted_as_it_was_emitted(tmp_path: Path) -> None:
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit([Metered, Totals, FinalTotals])
    rows = [
        {"meter": meter, "value": 0.1 * number**3 + meter / 3, "at": JAN + timedelta(hours=number)}
        for number in range(16)
        for meter in (1, 2)
    ]
    for begin in range(0, len(rows), 4):
        deployed.log("readings", rows[begin : begin + 4])
        drain(deployed.deployment)
    for name, closed in (("Totals", 15), ("FinalTotals", 12)):
        effects = deployed.changes(name).group_by("meter", "total", "spread", "at").agg(pl.col("_weight").sum())
        current = effects.filter(pl.col("_weight") != 0)
        assert sorted(current.select("meter", "at", "_weight").rows()) == [
            (meter, JAN + timedelta(hours=closed), 1) for meter in (1, 2)
        ]
    deployed.close()
