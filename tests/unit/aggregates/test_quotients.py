"""Averages and deviations of late rows: what is retracted is what was emitted, to the last digit.

Polars knows of a column joined from frames of one row when it has one value only, and multiplies with the rounded inverse of it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd
import polars as pl
import pytest

from umbel.aggregates.aggregate import Aggregate
from umbel.aggregates.columns import Columns
from umbel.aggregates.stddev import Stddev
from umbel.aggregates.sums import Average
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, Max, dataset, field, index, pipeline
from umbel.dtypes import Continuous, Tumbling, Window
from umbel.lib import inputs
from umbel.testing import MockClient
from umbel.types.dtypes import Decimal, DType, Float, Int

__owner__ = "tests@example.com"
JAN = datetime(2026, 1, 1, tzinfo=UTC)


@source(Webhook(name="web").endpoint("readings"), disorder="1d", cdc="append")
@dataset
class Measured:
    sensor: int
    value: float
    at: datetime


@index
@dataset
class Hours:
    sensor: int = field(key=True)
    window: Window = field(key=True)
    mean: float
    at: datetime

    @pipeline
    @inputs(Measured)
    def by_hour(cls, measured: Dataset):
        return measured.groupby("sensor", window=Tumbling("1h")).aggregate(mean=Average(of="value"))


@index
@dataset
class Peaks:
    sensor: int = field(key=True)
    peak: float
    hours: int
    at: datetime

    @pipeline
    @inputs(Hours)
    def by_sensor(cls, hours: Dataset):
        forever = Continuous("forever")
        return hours.groupby("sensor").aggregate(
            peak=Max(of="mean", default=0.0, window=forever), hours=Count(window=forever)
        )


def test_a_corrected_mean_is_retracted() -> None:
    client = MockClient()
    client.commit("means", datasets=[Measured, Hours, Peaks])
    for sensor, hour, values in ((2, 9, [0.0]), (1, 1, [1.0] * 3), (1, 0, [1.0, 1.0, 3.0]), (1, 0, [-3.0])):
        rows = [{"sensor": sensor, "value": value, "at": JAN + timedelta(hours=hour)} for value in values]
        client.log("web", "readings", pd.DataFrame(rows))
    assert client.get_dataset_df("Hours")["mean"].tolist() == [0.5, 1.0, 0.0]
    found, _ = client.lookup(Peaks, pd.DataFrame({"sensor": [1]}), timestamps=pd.Series([JAN + timedelta(days=1)]))
    assert found[["peak", "hours"]].to_numpy().tolist() == [[1.0, 3]]


@pytest.mark.parametrize("aggregate", [Average(of="x"), Stddev(of="x")], ids=["average", "deviation"])
@pytest.mark.parametrize("dtype", [Int(), Float(), Decimal(2)], ids=str)
def test_a_state_has_one_value_whatever_is_beside_it(aggregate: Aggregate, dtype: DType) -> None:
    state = Columns("x", dtype, is_retractable=True)
    states = []
    for number in range(20):
        values = pl.Series("x", [1, 1, number]).cast(dtype.polars())
        rows = pl.DataFrame({"x": values, "_weight": [1] * 3})
        states.append(rows.select(state.full(aggregate.lift(state))))
    alone, beside = states, [pl.concat([each, states[0]]) for each in states]
    found = [[each.select(aggregate.result(each, state)).item(0, 0) for each in frames] for frames in (alone, beside)]
    assert found[0] == found[1]
