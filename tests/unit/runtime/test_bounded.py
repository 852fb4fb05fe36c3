"""Sources that come to an end hold nothing back any more, and are not read again."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.deployed import Deployed
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Tumbling
from umbel.lib import inputs
from umbel.runtime import sources
from umbel.runtime.batch import drain

__owner__ = "team@example.com"
HOOK = Webhook(name="web")


@source(HOOK.endpoint("archive"), disorder="1h", cdc="append", bounded=True, idleness="10m")
@source(HOOK.endpoint("live"), disorder="1h", cdc="append")
@dataset
class Click:
    user: str
    at: datetime


@dataset(index=True)
class Clicks:
    user: str = field(key=True)
    n: int
    at: datetime

    @pipeline
    @inputs(Click)
    def final(cls, clicks: Dataset):
        return clicks.groupby("user").aggregate(n=Count(window=Tumbling("1h")), emit="final")


@source(HOOK.endpoint("archive"), disorder="1h", cdc="append", bounded=True, idleness="10m")
@dataset
class OldClick:
    user: str
    at: datetime


@dataset(index=True)
class OldClicks:
    user: str = field(key=True)
    n: int
    at: datetime

    @pipeline
    @inputs(OldClick)
    def final(cls, clicks: Dataset):
        return clicks.groupby("user").aggregate(n=Count(window=Tumbling("1h")), emit="final")


class Clock:
    """Stands for the monotonic clock."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(sources, "time", found)
    return found


def clicks(*hours: float) -> list[dict[str, Any]]:
    return [{"user": "a", "at": f"2024-01-02T{int(hour):02}:{int(hour % 1 * 60):02}:00Z"} for hour in hours]


def counts(place: Deployed) -> list[int]:
    return place.changes("Clicks").filter(pl.col("_weight") > 0)["n"].to_list()


def test_an_archive_that_has_been_read_holds_no_results_back(tmp_path: Path, clock: Clock) -> None:
    place = Deployed(tmp_path)
    place.commit([Click, Clicks])
    place.log("archive", clicks(0.5, 1.5))
    place.log("live", clicks(10, 11, 14))
    drain(place.deployment)
    assert counts(place) == []  # the archive has come to 1:30, so to 0:30 for sure
    drain(place.deployment)
    clock.now += 599
    assert drain(place.deployment) == 0
    clock.now += 2
    assert drain(place.deployment)
    assert counts(place) != []
    place.log("archive", clicks(0.6))
    assert drain(place.deployment) == 0
    place.log("live", clicks(15.5))
    assert drain(place.deployment)
    (row,) = place.lookup("Clicks", [{"user": "a"}], [datetime(2024, 1, 2, 12, 30, tzinfo=UTC)])
    assert row["n"] == 1


def test_when_all_sources_have_ended_the_newest_row_is_the_watermark(tmp_path: Path, clock: Clock) -> None:
    place = Deployed(tmp_path)
    place.commit([OldClick, OldClicks])
    place.log("archive", clicks(0.5, 1.5, 3.5))
    drain(place.deployment)
    drain(place.deployment)
    noon = [datetime(2024, 1, 2, 12, tzinfo=UTC)]
    (row,) = place.lookup("OldClicks", [{"user": "a"}], noon)
    assert row["at"] == datetime(2024, 1, 2, 2, tzinfo=UTC)  # 3:30 less the disorder
    clock.now += 601
    assert drain(place.deployment)
    assert drain(place.deployment) == 0
    (row,) = place.lookup("OldClicks", [{"user": "a"}], noon)
    assert (row["at"], row["n"]) == (datetime(2024, 1, 2, 3, tzinfo=UTC), 0)
