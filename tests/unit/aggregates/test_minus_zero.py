"""Zeros of both signs: aggregates answer 0.0, whichever row came first, from the state, from history and in process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest

from tests.deployed import Deployed
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, FirstK, LastK, Max, Min, Quantile, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.runtime.batch import drain
from umbel.testing import MockClient

__owner__ = "tests@example.com"
JAN = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = Continuous("1d")


@source(Webhook(name="web").endpoint("readings"), disorder="1d", cdc="append")
@dataset
class Reading:
    sensor: int
    value: float
    at: datetime


@index
@dataset
class Readings:
    sensor: int = field(key=True)
    least: float
    most: float
    middle: float
    first: list[float]
    last: list[float]
    last_once: list[float]
    at: datetime

    @pipeline
    @inputs(Reading)
    def by_sensor(cls, readings: Dataset):
        return readings.groupby("sensor").aggregate(
            least=Min(of="value", default=1.0, window=WINDOW),
            most=Max(of="value", default=1.0, window=WINDOW),
            middle=Quantile(of="value", p=0.5, default=1.0, approx=True, window=WINDOW),
            first=FirstK(of="value", limit=3, dedup=False, dropnull=False, window=WINDOW),
            last=LastK(of="value", limit=3, dedup=False, window=WINDOW),
            last_once=LastK(of="value", limit=3, dedup=True, window=WINDOW),
        )


@pytest.mark.parametrize("instants", [3, 40])
def test_zeros_of_both_signs(tmp_path: Path, instants: int) -> None:
    rows = [
        {"sensor": sensor, "value": 0.0 if (n + sensor) % 2 else -0.0, "at": JAN + timedelta(seconds=n)}
        for n in range(instants)
        for sensor in (1, 2)
    ]
    at = [JAN + timedelta(seconds=instants // 2), JAN + timedelta(seconds=instants)]
    client = MockClient()
    client.commit("readings", datasets=[Reading, Readings])
    client.log("web", "readings", pd.DataFrame(rows))
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit([Reading, Readings])
    deployed.log("readings", rows)
    drain(deployed.deployment)
    names = ["least", "most", "middle", "first", "last", "last_once"]
    for sensor in (1, 2):
        keys = pd.DataFrame({"sensor": [sensor] * 2})
        local, _ = client.lookup(Readings, keys, names, timestamps=pd.Series(at))
        served = pd.DataFrame(deployed.lookup("Readings", [{"sensor": sensor}] * 2, at))[names]
        for found in (local, served):
            text = str(found.to_numpy().tolist())
            assert "-0.0" not in text, (sensor, text)
    deployed.close()
