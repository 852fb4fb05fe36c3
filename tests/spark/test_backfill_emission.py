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
from umbel.spark import backfill_step
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


def watched(monkeypatch: pytest.MonkeyPatch, failing: str) -> list[int]:
    """Make steps small, and each fail once; return the list that gets the number of each that emits."""
    emitted, failed, done, commit = list[int](), set[int](), BackfillState.emitted, ChangeLogs.commit_step

    def noted(state: BackfillState, *rest: Any) -> BackfillState:
        emitted.append(state.step)
        return done(state, *rest)

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


@pytest.mark.parametrize("failing", ["never", "before", "after"])
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
    assert len(set(emitted)) == len(emitted)
    for name in ("Hours", "Days", "All"):
        assert len(content(deployed, f"Old{name}")) > 5
        assert content(deployed, f"New{name}") == content(deployed, f"Old{name}")
    deployed.close()
