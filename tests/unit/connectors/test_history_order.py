"""Rows that exist already, read in no order of event time: none of them is late, however small the batches are."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.connectors.shop_datasets import deployed, letters, until
from tests.deployed import Deployed
from umbel import Count, Dataset, Tumbling, pipeline
from umbel.connectors import source
from umbel.connectors.files import Files
from umbel.connectors.polling import stop_polling
from umbel.datasets import dataset, field
from umbel.lib import inputs
from umbel.runtime import source_lags as module
from umbel.runtime.batch import drain
from umbel.runtime.source_lags import source_lags

__owner__ = "tests@example.com"
START = datetime(2024, 1, 1, tzinfo=UTC)
COUNT, PARTS = 4000, 8


def shuffled() -> list[dict[str, Any]]:
    """Return a row per hour, in no order."""
    rows = [{"n": hour % 7, "t": START + timedelta(hours=hour)} for hour in range(COUNT)]
    random.Random(1).shuffle(rows)
    return rows


def parts(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return rows as a job of hash partitions writes them: each part has rows of the whole time."""
    return [rows[number::PARTS] for number in range(PARTS)]


def write_json(folder: Path, rows: list[dict[str, Any]]) -> None:
    for number, part in enumerate(parts(rows)):
        lines = (json.dumps({**row, "t": row["t"].isoformat()}) + "\n" for row in part)
        (folder / f"part-{number:05d}.json").write_text("".join(lines))


def write_parquet(folder: Path, rows: list[dict[str, Any]]) -> None:
    for number, part in enumerate(parts(rows)):
        pl.DataFrame(part).write_parquet(folder / f"part-{number:05d}.parquet", row_group_size=100)


def write_delta(folder: Path, rows: list[dict[str, Any]]) -> None:
    for part in parts(rows):
        pl.DataFrame(part).write_delta(str(folder), mode="append")


def features(connector: Any, version: int = 1, **read: Any) -> list[Any]:
    """Return the rows of a connector, and how many there are of each number in each day."""

    @source(connector, disorder="1h", every="1s", **{"cdc": "append", **read})
    @dataset(version=version)
    class Hours:
        n: int
        t: datetime

    @dataset(index=True, version=version)
    class Days:
        n: int = field(key=True)
        hours: int
        t: datetime

        @pipeline
        @inputs(Hours)
        def count(cls, rows: Dataset):
            return rows.groupby("n").aggregate(hours=Count(window=Tumbling("1d")), emit="final")

    return [Hours, Days]


@contextmanager
def reading(folder: Path, pattern: str = "*.json", budget: int = 20_000, **options: Any) -> Iterator[Deployed]:
    """Return a deployment that reads the files of `in` in batches of a size."""
    form, read = pattern.removeprefix("*."), {}
    if pattern == ".":
        form, read = "delta", {"cdc": "native"}
    place = Deployed(folder / "umbel", budget=budget)
    try:
        connector = Files(name="f", folder=str(folder / "in")).path(pattern, format=form, **options)
        place.commit(features(connector, **read))
        yield place
    finally:
        stop_polling(folder)
        place.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployed]:
    """Return a deployment that reads JSON files, a file in each batch."""
    (tmp_path / "in").mkdir()
    write_json(tmp_path / "in", shuffled())
    with reading(tmp_path) as made:
        yield made


def expected() -> pl.DataFrame:
    """Return the rows of `Days` that are final: those of the days before the last hour, less the disorder."""
    hours = [{"n": hour % 7, "t": START + timedelta(hours=hour)} for hour in range(COUNT)]
    days = pl.DataFrame(hours).group_by("n", pl.col("t").dt.truncate("1d").dt.offset_by("1d")).len("hours")
    return days.filter(pl.col("t") <= START + timedelta(hours=COUNT - 2)).sort("t", "n")


def final_days(made: Deployed) -> pl.DataFrame:
    found = made.changes("Days").filter(pl.col("_weight") > 0)
    return found.select("n", pl.col("t").cast(pl.Datetime("us", "UTC")), pl.col("hours").cast(pl.UInt32)).sort("t", "n")


@pytest.mark.parametrize("budget", [20_000, 1 << 30])
@pytest.mark.parametrize("write", [write_json, write_parquet, write_delta])
def test_no_row_of_a_history_is_late(write: Callable[..., None], budget: int, tmp_path: Path) -> None:
    """Such as one that Spark wrote: with the disorder of an hour, all but the first batch was late."""
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", shuffled())
    form = write.__name__.removeprefix("write_")
    with reading(tmp_path, "." if form == "delta" else f"*.{form}", budget) as place:
        until(place, lambda: place.taken().get("Hours", 0) >= COUNT)
        assert letters(place) == []
        until(place, lambda: final_days(place).height == expected().height)  # the watermark comes with the end
        assert final_days(place).equals(expected())


def test_rows_of_files_that_come_later_are_late_as_ever(tmp_path: Path) -> None:
    """Also where a worker that has begun anew reads them."""
    (tmp_path / "in").mkdir()
    write_json(tmp_path / "in", shuffled())
    definitions = features(Files(name="f", folder=str(tmp_path / "in")).path("*.json"))
    with deployed(tmp_path, *definitions) as place:
        drain(place.deployment)
    for number, hours in enumerate([range(COUNT - 24, COUNT), range(COUNT, COUNT + 24)]):
        lines = (json.dumps({"n": 0, "t": (START + timedelta(hours=hour)).isoformat()}) + "\n" for hour in hours)
        (tmp_path / "in" / f"more-{number}.json").write_text("".join(lines))
    with deployed(tmp_path) as place:
        until(place, lambda: place.taken()["Hours"] >= COUNT + 48)
        late = [each.reason for each in letters(place)]
        assert len(late) == 22, "the last two hours are within the disorder"
        assert all(each.startswith("late: ") for each in late)


def test_presorted_files_have_a_watermark_from_the_first_one_on(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = sorted(shuffled(), key=lambda row: row["t"])
    for number in range(PARTS):
        part = rows[number * COUNT // PARTS : (number + 1) * COUNT // PARTS]
        lines = (json.dumps({**row, "t": row["t"].isoformat()}) + "\n" for row in part)
        (tmp_path / "in" / f"part-{number:05d}.json").write_text("".join(lines))
    with reading(tmp_path, presorted=True) as place:
        drain(place.deployment, batches=3)
        assert 0 < place.taken()["Hours"] < COUNT
        assert final_days(place).height > 0
        drain(place.deployment)
        assert letters(place) == []
        assert final_days(place).equals(expected())
        (tmp_path / "in" / "part-00003-again.json").write_text('{"n": 0, "t": "2024-01-01T00:00:00Z"}\n')
        drain(place.deployment)
        assert place.taken()["Hours"] == COUNT, "its name sorts before the last one"


def test_the_status_says_why_there_is_no_watermark(place: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY", 0.0)
    drain(place.deployment, batches=2)
    (lag,) = source_lags(place.deployment.directory)
    assert str(lag).endswith("; no watermark until the rows that exist are read")
    drain(place.deployment)
    (lag,) = source_lags(place.deployment.directory)
    assert not lag.is_loading


def test_final_results_of_a_history_come_in_as_many_batches_as_its_rows(place: Deployed) -> None:
    """Those of all its days in one batch would need the memory for all of them."""
    heights, loaded = [0], 0
    while drain(place.deployment, batches=1):
        heights.append(final_days(place).height)
        loaded += heights[-1] == 0
    assert place.taken()["Hours"] == COUNT
    assert final_days(place).equals(expected())
    steps = [after - before for before, after in pairwise(heights)]
    assert max(steps) < 1.5 * expected().height / (loaded - 1), (loaded, steps)


def test_a_new_version_serves_once_its_final_results_are_there(place: Deployed, tmp_path: Path) -> None:
    """And not once its rows have been read: the version before has all of them."""
    catalog = place.deployment.catalog
    drain(place.deployment)
    place.commit(features(Files(name="f", folder=str(tmp_path / "in")).path("*.json"), version=2))
    batches, before = 0, catalog.serving(catalog.latest())
    while catalog.serving(catalog.latest()) == before:
        assert drain(place.deployment, batches=1)
        batches += 1
    assert batches > PARTS
    assert final_days(place).equals(expected())
