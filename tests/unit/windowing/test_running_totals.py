"""Totals of floats since ever, emitted hour by hour while what is final is merged: each is retracted as it was emitted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.deployed import Deployed
from umbel.aggregates.columns import Columns
from umbel.connectors import Webhook, source
from umbel.datasets import Average, Count, Dataset, ExpDecaySum, Quantile, Stddev, Sum, dataset, field, pipeline
from umbel.dtypes import Hopping
from umbel.lib import inputs
from umbel.runtime.batch import drain
from umbel.types.dtypes import Float, Optional
from umbel.windowing.partials import Partials

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


@pytest.mark.parametrize(
    "values",
    [
        [[None, None], [1e9, 1e9 + 1], [1e9 + 3]],  # the first state has a center of nothing
        [[1e6], [1.0, 2.0, 4.0], [2.5, 3.5]],  # the first one is far from the others
        [[float(number), number + 0.25] for number in range(3000)],
    ],
    ids=["empty at first", "far at first", "rising"],
)
def test_running_deviations_are_those_of_all_rows_so_far(values: list[list[float | None]]) -> None:
    """And what continues from any of them is the same, to the last digit."""
    aggregate, state = Stddev(of="value", window=EVER, into_field="x"), Columns("value", Optional(Float()))
    partials, weight = Partials(((aggregate, state),)), [pl.col("_weight").sum()]
    rows = pl.DataFrame({"value": [each for one in values for each in one]}, {"value": pl.Float64})
    rows = rows.with_columns(pl.lit(1, pl.Int64).alias("_weight"))
    begins = np.zeros(len(rows), np.bool_)
    begins[np.cumsum([0, *map(len, values)])[:-1]] = True
    states = partials.lift(rows, begins, weight)
    states = pl.concat([states, states])  # of two keys

    def spread(frame: pl.DataFrame, keys: int) -> list[float]:
        owners = np.repeat(np.arange(keys), len(frame) // keys)
        made = partials.accumulate_in_order(frame, owners, weight)
        results.append(made)
        return made.select(aggregate.result(made, state)).to_series().to_list()

    results = list[pl.DataFrame]()
    found = spread(states, 2)
    so_far = [
        [each for one in values[: number + 1] for each in one if each is not None] for number in range(len(values))
    ]
    expected = [float(np.std(each)) if each else -1.0 for each in so_far[:40]]
    assert found[:40][: len(expected)] == pytest.approx(expected, rel=1e-9)
    assert found[: len(values)] == found[len(values) :]
    for begin in range(0, len(values), max(1, len(values) // 5)):
        rest = pl.concat([results[0][begin : begin + 1], states[begin + 1 : len(values)]])
        assert spread(rest, 1) == found[begin : len(values)]


def test_running_decayed_sums_are_those_merged_one_by_one() -> None:
    aggregate, state = ExpDecaySum(of="value", half_life="90s", window=EVER), Columns("value", Optional(Float()))
    partials, weight = Partials(((aggregate, state),)), [pl.col("_weight").sum()]
    chance, seconds = np.random.default_rng(7), np.cumsum(np.r_[0, np.tile([40, 7, -5, 100_000], 20)])
    values = [None if number % 9 in (0, 4) else float(chance.normal()) * 10.0**number for number in range(-9, 72)]
    rows = pl.DataFrame({"value": pl.Series(values, dtype=pl.Float64), "_time_first": seconds * 1_000_000})
    rows = rows.with_columns(pl.lit(1, pl.Int64).alias("_weight"))
    states = partials.lift(rows, np.ones(len(rows), np.bool_), weight)
    owners = np.repeat([0, 1, 2], [40, 1, len(rows) - 41])
    running = partials.accumulate_in_order(states, owners, weight)
    total = states[:0]
    for number, owner in enumerate(owners):
        begins = np.arange(2 if number and owner == owners[number - 1] else 1) == 0
        total = partials.merge(pl.concat([total, states[number : number + 1]])[-len(begins) :], begins, weight)
        assert total.equals(running[number : number + 1]), number


def test_each_running_merge_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantiles sort all their values each time that they are merged."""
    aggregate, state = Quantile(of="value", p=0.5, approx=True, window=EVER), Columns("value", Optional(Float()))
    partials, weight = Partials(((aggregate, state),)), [pl.col("_weight").sum()]
    sizes = [1, 2, 3, 7, 700, *[1] * 100]
    owners = np.repeat(np.arange(len(sizes)), sizes)
    values = np.random.default_rng(3).integers(0, 50, len(owners)).astype(float)
    rows = pl.DataFrame({"value": values, "_weight": np.ones(len(owners), np.int64)})
    states = partials.lift(rows, np.ones(len(rows), np.bool_), weight)
    merged, tidy = [], Quantile.tidy
    monkeypatch.setattr(Quantile, "tidy", lambda self, of, at: merged.append(len(of)) or tidy(self, of, at))
    found = partials.accumulate(states, owners, weight)
    assert sum(merged) <= 3 * len(owners)
    medians = found.select(aggregate.result(found, state)).to_series().to_list()
    for number, owner in enumerate(owners):
        so_far = sorted(values[: number + 1][owners[: number + 1] == owner])
        assert (found["_weight"][number], medians[number]) == (len(so_far), so_far[len(so_far) // 2])
