"""Batches whose rows make many: they read less, and compute the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.aggregating import aggregation
from tests.deployed import Deployed
from umbel.connectors import CSV, Files, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, Hopping, Session, Tumbling
from umbel.lib import inputs
from umbel.operators.explode import Explode
from umbel.processes.memory import Memory
from umbel.runtime import batch_sizes, deployment
from umbel.runtime.batch import drain
from umbel.runtime.batch_sizes import MADE_BYTES, MOST_MADE, BatchSizes, rows_of_one
from umbel.runtime.deployment import JOB

__owner__ = "tests@example.com"
JAN = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS, USERS, MOST = 3_000, 40, 8_000
SIZES = BatchSizes(first=100, least=10, full=10_000, made=MOST_MADE)


@pytest.mark.parametrize(
    ("limit", "size", "made", "expected"),
    [
        (100, 100, 50, 800),  # grows
        (800, 800, 50, 6_400),
        (6_400, 6_400, 50, 10_000),  # up to the full size
        (10_000, 3, 0, 100),  # a backlog after small batches is begun with little
        (10_000, 0, 0, 10_000),  # a batch without input tells nothing
        (100, 100, 8_000_000, 50),  # made twice as much as it should
        (50, 50, 8_000_000, 25),
        (25, 25, 8_000_000_000, 10),  # down to the least
        (50, 50, 4_000_000, 50),  # stays
        (50, 50, 1_000_000, 200),  # may grow by what is missing to the most
        (50, 5, 400_000, 100),  # little is made of little
    ],
)
def test_the_limit_after_a_batch(limit: int, size: int, made: int, expected: int) -> None:
    assert SIZES.after(limit, size, made) == expected


def test_a_small_full_size_is_never_exceeded() -> None:
    sizes = BatchSizes(first=100, least=10, full=5, made=MOST_MADE)
    assert sizes.begin == 5
    assert sizes.after(5, 5, 0) == sizes.after(5, 5, 10**9) == 5


def events(file: Path, form: str) -> None:
    """Write events of users, one in twenty of them two days late."""
    with file.open("w") as written:
        for number in range(EVENTS):
            at = JAN + timedelta(minutes=number * 5, days=-2 if number % 20 == 0 else 0)
            row = {"user": number % USERS, "amount": number * 0.1, "at": at.isoformat()}
            written.write((json.dumps(row) if form == "json" else ",".join(map(str, row.values()))) + "\n")


def made_of(folder: Path, form: str) -> tuple[pl.DataFrame, Sequence[int], int]:
    """Process the events; return the results in force, the limits after each batch, and the events that came in."""

    @source(
        Files(name="disk", folder=str(folder)).path(
            "*", format=CSV(headers=["user", "amount", "at"]) if form == "csv" else form
        ),
        disorder="14d",
        cdc="append",
    )
    @dataset
    class Paid:
        user: int
        amount: float
        at: datetime

    @dataset(index=True)
    class Spent:
        user: int = field(key=True)
        total: float
        count: int
        at: datetime

        @pipeline
        @inputs(Paid)
        def by_user(cls: Any, paid: Any) -> Any:
            window = Hopping("1d", "10m")
            return paid.groupby("user").aggregate(total=Sum(of="amount", window=window), count=Count(window=window))

    deployed, limits = Deployed(folder.parent / "umbel"), list[int]()
    deployed.commit([Paid, Spent])
    while drain(deployed.deployment, 1):
        progress = deployed.deployment.catalog.progress(JOB, 10**9)
        assert progress is not None
        limits.append(progress.state["limit"])
    changes, read = deployed.changes("Spent"), deployed.changes("Paid").height
    deployed.close()
    net = changes.group_by("user", "total", "count", "at").agg(pl.col("_weight").sum())
    return net.filter(pl.col("_weight") != 0).sort("user", "at"), limits, read


@pytest.mark.parametrize("form", ["json", "csv"])
def test_small_batches_make_what_a_large_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    found = []
    for name in ("large", "small"):
        folder = tmp_path / name / "data"
        folder.mkdir(parents=True)
        events(folder / "events", form)
        found.append(made_of(folder, form))
        monkeypatch.setattr(batch_sizes, "MOST_MADE", MOST)
        monkeypatch.setattr(deployment, "LEAST_BYTES", 2 << 10)
    (at_once, _, rows), (in_turn, limits, same) = found
    assert rows == same == EVENTS
    assert at_once.equals(in_turn)
    assert len(limits) > 5
    assert max(limits) < 32 << 10


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Hopping("1d", "10m"), 144),
        (Hopping("1h", "7m"), 9),
        (Hopping("30d", "1m"), 43_200),
        (Hopping("1d", "1d"), 1),
        (Hopping("forever", "10m"), 1),
        (Tumbling("1h"), 1),
        (Continuous("30d"), 1),
    ],
    ids=str,
)
def test_overlapping_windows_multiply_rows(window: Any, expected: int) -> None:
    assert rows_of_one(aggregation(Count(window=window))) == expected


def test_a_key_of_overlapping_windows_and_exploded_lists_multiply_rows() -> None:
    assert rows_of_one(aggregation(Count(), window=Hopping("1h", "1m"))) == 60
    assert rows_of_one(aggregation(Count(window=Hopping("1h", "1m")), emit="final")) == 60
    assert rows_of_one(aggregation(Count(), window=Session("1h"))) == 1
    assert rows_of_one(Explode(parents=aggregation(Count(window=Continuous("1h"))).parents, columns=("l",))) > 1


def test_batches_make_less_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sizes, "memory", lambda: Memory(600 << 20, 2 << 30))
    sizes = BatchSizes.of([aggregation(Count(), window=Hopping("1d", "1h"))], 10, 10**9)
    rows = (600 << 20) // MADE_BYTES
    assert sizes.begin == rows // 24
    assert sizes.after(sizes.begin, sizes.begin, 2 * rows) == sizes.begin // 2


def test_the_first_batch_is_as_small_as_its_windows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sizes, "memory", lambda: Memory(64 << 30, 64 << 30))
    hours, minutes = (aggregation(Count(), window=Hopping(*each)) for each in (("1d", "1h"), ("30d", "1m")))
    once = aggregation(Count(), window=Tumbling("1d"))
    assert BatchSizes.of([once], 10, 10**9).begin == 10**9
    assert BatchSizes.of([once, hours], 10, 10**9).begin == MOST_MADE // 24
    assert BatchSizes.of([hours, minutes, once], 10, 10**9).begin == MOST_MADE // 43_200
    assert BatchSizes.of([minutes], 10, 10**9, unit=64).begin == 64 * MOST_MADE // 43_200
    assert BatchSizes.of([minutes], 10**4, 10**9).begin == 10**4
    assert BatchSizes.of([minutes], 10, 50).begin == 50
