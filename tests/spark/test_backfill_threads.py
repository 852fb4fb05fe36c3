"""Steps of a backfill in threads of the driver: which ones run there, and what a failure in one leaves."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed, live, wait_until
from umbel.connectors import Webhook, source
from umbel.datasets import Count, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.runtime import backfill_state, batch_sizes
from umbel.runtime.backfill_state import BackfillState
from umbel.runtime.changelogs import ChangeLogs
from umbel.runtime.retries import EXCUSED
from umbel.runtime.switching import branch_status
from umbel.spark import backfill_step, pace

__owner__ = "tests@example.com"
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
USERS, REQUESTS, ROWS = 7, 6, 210


@source(Webhook(name="web").endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visit:
    user: int
    at: datetime


def counted(name: str, window: str, *, has_function: bool = False) -> Any:
    @pipeline
    @inputs(Visit)
    def made(cls: Any, rows: Any) -> Any:
        visits = rows.filter(lambda df: df["user"] >= 0) if has_function else rows
        return visits.groupby("user").aggregate(visits=Count(window=Continuous(window)))

    annotations = {"user": int, "visits": int, "at": datetime}
    members = {"__module__": __name__, "__annotations__": annotations, "user": field(key=True), "made": made}
    return index(dataset(type(name, (), members)))


@pytest.fixture
def in_tasks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list that gets the number of each step that runs in tasks, of several small steps."""
    found, run = list[int](), backfill_step.BackfillStep._run_in_tasks

    def noted(self: Any, todo: Any, stamp: Any, report: Any) -> None:
        found.append(stamp.batch)
        run(self, todo, stamp, report)

    monkeypatch.setattr(backfill_step.BackfillStep, "_run_in_tasks", noted)
    monkeypatch.setattr(backfill_step, "ROWS_AT_ONCE", ROWS)
    monkeypatch.setattr(backfill_state, "LONGEST_WAIT", 0.1)
    return found


def test_steps_that_make_many_rows_become_smaller(
    tmp_path: Path, spark: Any, in_tasks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, completed = list[int](), BackfillState.completed

    def noted(state: BackfillState, rows: int, *rest: Any) -> BackfillState:
        found = completed(state, rows, *rest)
        limits.append(found.limit)
        return found

    monkeypatch.setattr(BackfillState, "completed", noted)
    monkeypatch.setattr(batch_sizes, "MOST_MADE", ROWS // 2)
    monkeypatch.setattr(backfill_step, "LEAST_ROWS", ROWS // 10)
    assert backfilled(tmp_path, spark, counted("New", "1d")) == [ROWS * REQUESTS // USERS] * USERS
    assert len(limits) > REQUESTS // 2, "each was of one batch, which had two before"
    assert max(limits) <= ROWS // 2
    assert not in_tasks


def backfilled(folder: Path, spark: Any, new: Any) -> list[int]:
    """Commit a dataset after its history is there; return its counts once it is computed."""
    deployed = Deployed(folder, budget=1)
    deployed.commit([Visit, counted("Old", "forever")])
    visits = ",".join(f'{{"user": {number % USERS}, "at": "2024-01-01T12:00:00Z"}}' for number in range(ROWS))
    for _ in range(REQUESTS):  # a batch each, too large to be of rows that are to be fresh
        deployed.log_bytes("visits", f"[{visits}]".encode() + b" " * (3 << 20), ROWS)
    with live(deployed, spark, small=None) as caught_up:
        caught_up({"Visit": ROWS * REQUESTS})
        deployed.commit([Visit, counted("Old", "forever"), new])
        status = lambda: branch_status(deployed.deployment, "main")  # noqa: E731
        wait_until(lambda: status()["state"] == "serving", status)
    assert deployed.deployment.catalog.noted(EXCUSED) == 1, "the worker was stopped: nothing that it ran is to blame"
    keys = [{"user": user} for user in range(USERS)]
    found = [row["visits"] for row in deployed.lookup("New", keys, [NOON] * USERS)]
    deployed.close()
    return found


def test_large_steps_run_in_threads_of_the_driver(tmp_path: Path, spark: Any, in_tasks: list[int]) -> None:
    assert backfilled(tmp_path, spark, counted("New", "1d")) == [ROWS * REQUESTS // USERS] * USERS
    assert not in_tasks


def test_steps_follow_each_other_before_a_batch_without_rows(
    tmp_path: Path, spark: Any, in_tasks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, run = list[int](), backfill_step.BackfillStep.run

    def noted(self: Any, *rest: Any, **named: Any) -> bool:
        before.append(self.stamp.batch)
        return run(self, *rest, **named)

    monkeypatch.setattr(backfill_step.BackfillStep, "run", noted)
    monkeypatch.setattr(pace, "AT_ONCE_FOR", 60.0)
    assert backfilled(tmp_path, spark, counted("New", "1d")) == [ROWS * REQUESTS // USERS] * USERS
    assert len(before) > 1 == len(set(before)), "several steps before one batch"


def test_user_functions_run_in_tasks(tmp_path: Path, spark: Any, in_tasks: list[int]) -> None:
    new = counted("New", "1d", has_function=True)
    assert backfilled(tmp_path, spark, new) == [ROWS * REQUESTS // USERS] * USERS
    assert len(in_tasks) > 1


@pytest.mark.parametrize("is_after", [False, True])
def test_a_step_that_fails_counts_nothing_twice(
    tmp_path: Path, spark: Any, in_tasks: list[int], monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    commit, failed = ChangeLogs.commit_step, list[int]()

    def failing(self: ChangeLogs, step: int, *rest: Any) -> None:
        if is_after:
            commit(self, step, *rest)
        if step not in failed:
            failed.append(step)
            raise OSError("no room")
        commit(self, step, *rest)

    monkeypatch.setattr(ChangeLogs, "commit_step", failing)
    assert backfilled(tmp_path, spark, counted("New", "1d")) == [ROWS * REQUESTS // USERS] * USERS
    assert len(failed) > 1, "several steps, each of which failed once after its state was written"
    assert not in_tasks


@pytest.mark.parametrize("has_function", [False, True], ids=["in threads", "in tasks"])
def test_a_step_that_ends_a_process_is_read_in_smaller_ones(
    tmp_path: Path, spark: Any, in_tasks: list[int], monkeypatch: pytest.MonkeyPatch, has_function: bool
) -> None:
    commit, planned, ended = ChangeLogs.commit_step, backfill_step.BackfillStep._planned, list[int]()
    reading = [0]

    def noted(self: Any, state: Any, history: Any, *rest: Any, **named: Any) -> Any:
        found = planned(self, state, history, *rest, **named)
        reading[0] = history.left(found.position) - history.left(found.end)
        return found

    def ends(self: ChangeLogs, step: int, *rest: Any) -> None:
        if reading[0] > 2 * ROWS // 3:
            ended.append(reading[0])
            raise RuntimeError("Job aborted due to stage failure: Python worker exited unexpectedly (crashed)")
        commit(self, step, *rest)

    monkeypatch.setattr(backfill_step.BackfillStep, "_planned", noted)
    monkeypatch.setattr(ChangeLogs, "commit_step", ends)
    new = counted("New", "1d", has_function=has_function)
    assert backfilled(tmp_path, spark, new) == [ROWS * REQUESTS // USERS] * USERS
    assert len(ended) == 2, "the others had an eighth of it, then up to a fourth"
    assert ended[0] == ended[1]
    assert bool(in_tasks) == has_function
