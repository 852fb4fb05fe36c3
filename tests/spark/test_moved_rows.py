"""Pipelines that move timestamps back by more than the disorder: nothing is closed or forgotten too early."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import polars as pl
import pytest

from tests.deployed import Deployed, live
from umbel.connectors import Webhook, source
from umbel.datasets import Count, dataset, field, index, pipeline
from umbel.dtypes import Continuous, Tumbling
from umbel.lib import inputs
from umbel.runtime.batch import drain
from umbel.runtime.deployment import JOB

__owner__ = "tests@example.com"
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
DISORDER, HALF, BATCHES, ROWS, USERS = 10, 30, 6, 60, 3
DRIVER, TASKS = 1 << 40, 0
EVERY = 0.9
"""Seconds between two visits."""
MINUTE = timedelta(minutes=1)


@source(Webhook(name="web").endpoint("visits"), disorder=f"{DISORDER}s", cdc="append")
@dataset
class Visit:
    user: int
    at: datetime


def made(name: str, compute: Any, *, is_final: bool = False) -> Any:
    """Return a dataset that counts what is left of the visits of each user."""

    @pipeline
    @inputs(Visit)
    def count(cls: Any, rows: Any) -> Any:
        if is_final:
            return compute(rows).groupby("user").aggregate(n=Count(window=Tumbling("1m")), emit="final")
        return compute(rows).groupby("user").aggregate(n=Count(window=Continuous("forever")))

    annotations = {"user": int, "n": int, "at": datetime}
    members = {"__module__": __name__, "__annotations__": annotations, "user": field(key=True), "count": count}
    return index(dataset(type(name, (), members)))


def moved(rows: Any, seconds: int) -> Any:
    return rows.transform(lambda df: df.assign(at=df["at"] - timedelta(seconds=seconds)))


def per_minute(name: str, seconds: int) -> Any:
    """Return a dataset that counts minutes, of rows moved back to the beginning of theirs."""

    def to_minute(df: Any) -> Any:
        return df.assign(at=(df["at"] - timedelta(seconds=seconds)).dt.floor("1min"))

    return made(name, lambda rows: rows.transform(to_minute).dedup("user"))


def per_half(name: str, seconds: int) -> Any:
    """Return a dataset that counts half minutes."""
    return made(name, lambda rows: moved(rows, seconds).dedup("user", window=Tumbling(f"{HALF}s")))


def final(name: str, seconds: int) -> Any:
    """Return a dataset with the final count of each minute."""
    return made(name, lambda rows: moved(rows, seconds), is_final=True)


def history_alone(name: str, seconds: int) -> Any:
    """Return a dataset of rows of which those of the first worker alone are moved."""
    first = pd.Timestamp(NOON + timedelta(seconds=EVERY * ROWS * BATCHES / 2 - DISORDER))

    def move(df: pd.DataFrame) -> Any:
        return df.assign(at=df["at"].where(df["at"] > first, df["at"] - timedelta(seconds=seconds)))

    return made(name, lambda rows: rows.transform(move))


OLD = [Visit, per_minute("Minutes", 0), per_half("Halves", 45), final("Final", 45)]
NEW = [*OLD, per_minute("NewMinutes", 1), per_half("NewHalves", 44), final("NewFinal", 44), history_alone("Past", 43)]


def visits(seed: int) -> list[list[dict[str, Any]]]:
    """Return batches of rows that come within the disorder."""
    chance = Random(seed)
    found = [
        {"user": chance.randrange(USERS), "at": NOON + timedelta(seconds=EVERY * number)}
        for number in range(ROWS * BATCHES)
    ]
    found.sort(key=lambda row: row["at"] + timedelta(seconds=chance.random() * (DISORDER - 1)))
    return [found[first : first + ROWS] for first in range(0, len(found), ROWS)]


def check(
    place: Deployed, rows: list[dict[str, Any]], names: tuple[str, str, str], seconds: tuple[int, int, int]
) -> None:
    """Compare the datasets with what the rows give."""
    users = [{"user": user} for user in range(USERS)]
    for name, back, size in zip(names[:2], seconds, (MINUTE, MINUTE / 2), strict=False):
        expected = {(row["user"], (row["at"] - timedelta(seconds=back) - NOON) // size) for row in rows}
        found = place.lookup(name, users, [NOON + timedelta(days=1)] * USERS)
        assert [each["n"] for each in found] == [sum(user == one for user, _ in expected) for one in range(USERS)], name
    counts = Counter((row["user"], (row["at"] - timedelta(seconds=seconds[2]) - NOON) // MINUTE) for row in rows)
    results = place.changes(names[2]).filter(pl.col("_weight") > 0)
    found = {(row["user"], (row["at"] - NOON) // MINUTE - 1): row["n"] for row in results.iter_rows(named=True)}
    assert len(found) > 2 * USERS
    assert found == {window: counts[window] for window in found}, "each is what it will always be"
    assert len(found) == len(results), "none of them is corrected"


@pytest.mark.parametrize("form", ["drain", pytest.param("driver", marks=pytest.mark.nightly), "tasks"])
def test_rows_that_are_moved_back_meet_their_likes(tmp_path: Path, spark: Any, form: str) -> None:
    place, parts = Deployed(tmp_path), visits(seed=3)
    place.commit(NEW if form == "drain" else OLD)
    half = BATCHES // 2
    if form == "drain":
        for part in parts:
            place.log("visits", part)
            drain(place.deployment)
    else:
        for chosen, begin in ((OLD, 0), (NEW, half)):  # the second worker computes the new ones from history
            place.commit(chosen)
            with live(place, spark, small=DRIVER if form == "driver" else TASKS) as caught_up:
                for number, part in enumerate(parts[begin : begin + half], begin + 1):
                    place.log("visits", part)
                    caught_up({"Visit": number * ROWS})
    rows = [row for part in parts for row in part]
    check(place, rows, ("Minutes", "Halves", "Final"), (0, 45, 45))
    check(place, rows, ("NewMinutes", "NewHalves", "NewFinal"), (1, 44, 44))
    state = place.deployment.catalog.progress(JOB, 1 << 40).state
    assert {back // 10**6 for back, *_ in state["moved"].values()} == {59, 45, 60, 44, 43}
    assert [event.text for event in place.deployment.catalog.events()] == []
    place.close()
