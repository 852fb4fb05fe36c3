"""Results that wait for the watermark: a backfill emits them in steps, as a pipeline has that was there all along."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from tests.deployed import Deployed, live, wait_until
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Hopping, Tumbling
from umbel.expr import col
from umbel.lib import inputs
from umbel.runtime.backfill_state import BackfillState
from umbel.runtime.changelogs import ChangeLogs
from umbel.runtime.switching import branch_status
from umbel.spark import backfill_step, pace
from umbel.types.schema import SEQ, WEIGHT

__owner__ = "tests@example.com"
JAN = datetime(2024, 1, 1, tzinfo=UTC)
USERS, ROWS, BATCHES, HOURS = 7, 300, 4, 24 * 9
OUTLIER = {"user": 3, "amount": 1, "at": "1990-01-01T00:00:00Z"}


@source(Webhook(name="web").endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visit:
    user: int
    amount: int
    at: datetime


def pipelines(prefix: str) -> list[Any]:
    """Return final sums of hours, final counts of days over them, and what was the last of each hour's sums."""

    def made(name: str, keys: dict[str, Any], values: dict[str, Any], of: Any, compute: Any) -> Any:
        annotations = {**keys, **values, "at": datetime}
        build = pipeline(inputs(of)(compute))
        members = {"__module__": __name__, "__annotations__": annotations, "made": build}
        return dataset(type(prefix + name, (), {**members, **{key: field(key=True) for key in keys}}))

    def by_hour(cls: Any, rows: Any) -> Any:
        total = Sum(of="amount", window=Tumbling("1h"))
        different = rows if prefix == "Old" else rows.filter(col("user") >= 0)  # or they would have one state
        return different.groupby("user").aggregate(total=total, emit="final")

    def by_day(cls: Any, rows: Any) -> Any:
        inserts = rows.changelog(insert="is_new").filter(col("is_new"))
        return inserts.groupby("total").aggregate(hours=Count(window=Tumbling("1d")), emit="final")

    def in_all(cls: Any, rows: Any) -> Any:
        return rows.groupby("user").aggregate(hours=Count(window=Hopping("forever", "1h")))

    hours = made("Hours", {"user": int}, {"total": int}, Visit, by_hour)
    days = made("Days", {"total": int}, {"hours": int}, hours, by_day)
    return [hours, days, made("All", {"user": int}, {"hours": int}, hours, in_all)]


def visits(chance: Random, first: int) -> list[dict[str, Any]]:
    """Return rows of some days, in the order in which they arrive."""
    begin = JAN + timedelta(hours=first)
    found = [begin + timedelta(hours=HOURS / BATCHES * chance.random()) for _ in range(ROWS)]
    found.sort(key=lambda at: at + timedelta(hours=20 * chance.random()))
    return [{"user": chance.randrange(USERS), "amount": chance.randrange(5), "at": at.isoformat()} for at in found]


def content(deployed: Deployed, name: str) -> list[tuple[Any, ...]]:
    """Return the changes of a dataset with the instants from which on they count, in one order."""
    found = deployed.changes(name)
    columns = [each for each in found.columns if each not in (SEQ, WEIGHT)]
    net = found.group_by(columns).agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) != 0)
    return sorted(net.rows(), key=str)


def watched(monkeypatch: pytest.MonkeyPatch, failing: str) -> list[tuple[int, str]]:
    """Make steps small, and each fail once.

    Return the list that gets the number of each that emits, with the instant that it has reached.
    """
    emitted, failed, done, commit = list[tuple[int, str]](), set[int](), BackfillState.emitted, ChangeLogs.commit_step

    def noted(state: BackfillState, seen: Any, moved: Any, passed: Any, seconds: float) -> BackfillState:
        emitted.append((state.step, max(passed.values(), default="")))
        return done(state, seen, moved, passed, seconds)

    def fails(self: ChangeLogs, step: int, *rest: Any) -> None:
        if failing == "after":
            commit(self, step, *rest)
        if failing != "never" and step not in failed:
            failed.add(step)
            raise OSError("no room")
        commit(self, step, *rest)

    monkeypatch.setattr(BackfillState, "emitted", noted)
    monkeypatch.setattr(ChangeLogs, "commit_step", fails)
    monkeypatch.setattr(backfill_step, "ROWS_AT_ONCE", 50)
    monkeypatch.setattr(backfill_step, "LIVE_ROWS", 100)
    return emitted


@pytest.mark.parametrize("failing", ["never", "before", pytest.param("after", marks=pytest.mark.nightly)])
def test_results_come_in_steps_as_if_the_watermark_came_by(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    emitted = watched(monkeypatch, failing)
    chance, deployed = Random(7), Deployed(tmp_path, budget=1 << 14)
    deployed.commit([Visit, *pipelines("Old")])
    rows = [OUTLIER]
    for number in range(BATCHES):
        rows += visits(chance, number * HOURS // BATCHES)
        deployed.log("visits", rows[-ROWS - (number == 0) :])
    with live(deployed, spark, small=None) as caught_up:
        caught_up({"Visit": len(rows)})
        deployed.commit([Visit, *pipelines("Old"), *pipelines("New")])
        status = lambda: branch_status(deployed.deployment, "main")  # noqa: E731
        wait_until(lambda: status()["state"] == "serving", status)
        later = visits(chance, HOURS + 24 * 3)
        deployed.log("visits", later)
        caught_up({"Visit": len(rows) + len(later)})
    assert len(emitted) > 5
    for found in zip(*emitted, strict=True):
        assert sorted(set(found)) == list(found), "each is run once, and goes further than the one before"
    for name in ("Hours", "Days", "All"):
        assert len(content(deployed, f"Old{name}")) > 5
        assert content(deployed, f"New{name}") == content(deployed, f"Old{name}")
    deployed.close()


def test_rows_that_arrive_meanwhile_are_read_between_such_steps(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted, planned = watched(monkeypatch, "never"), backfill_step.BackfillStep._planned
    read_after, done = list[int](), BackfillState.emitted

    def noted(self: Any, state: BackfillState, *rest: Any, **named: Any) -> BackfillState:
        read_after.append(len(emitted))
        return planned(self, state, *rest, **named)

    def arrive(state: BackfillState, *rest: Any) -> BackfillState:
        deployed.log("visits", later[30 * len(emitted) : 30 * len(emitted) + 30])
        return done(state, *rest)

    monkeypatch.setattr(backfill_step.BackfillStep, "_planned", noted)
    monkeypatch.setattr(BackfillState, "emitted", arrive)
    monkeypatch.setattr(pace, "AT_ONCE_FOR", 0.0)
    chance, deployed = Random(7), Deployed(tmp_path, budget=1 << 14)
    deployed.commit([Visit, *pipelines("Old")])
    first, later = [OUTLIER, *visits(chance, 0), *visits(chance, HOURS // 4)], visits(chance, HOURS // 2)
    deployed.log("visits", first)
    with live(deployed, spark, small=None) as caught_up:
        caught_up({"Visit": len(first)})
        deployed.commit([Visit, *pipelines("Old"), *pipelines("New")])
        wait_until(lambda: branch_status(deployed.deployment, "main")["state"] == "serving", lambda: emitted)
        deployed.log("visits", later[30 * len(emitted) :])
        deployed.log("visits", visits(chance, HOURS + 24 * 3))
        caught_up({"Visit": 1 + 4 * ROWS})
    assert len(emitted) > 3
    assert max(read_after) > 0, "history was read after results were emitted"
    for name in ("Hours", "Days", "All"):
        assert content(deployed, f"New{name}") == content(deployed, f"Old{name}")
    deployed.close()
