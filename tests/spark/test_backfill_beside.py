"""Backfill steps that run beside the live job: what goes on meanwhile, and what can happen to them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.deployed import PATIENCE, Deployed, live, wait_until
from umbel.connectors import Webhook, source
from umbel.datasets import Count, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.runtime.switching import branch_status
from umbel.spark import backfill, backfill_step, pace, tasks
from umbel.spark.job import LiveJob
from umbel.spark.priority import NICENESS

__owner__ = "tests@example.com"
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
USERS, REQUESTS = 7, 10
ROWS = 210
"""Rows of a request."""


@source(Webhook(name="web").endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visit:
    user: int
    at: datetime


def counted(name: str, window: str) -> Any:
    @pipeline
    @inputs(Visit)
    def made(cls, rows):
        return rows.groupby("user").aggregate(visits=Count(window=Continuous(window)))

    annotations = {"user": int, "visits": int, "at": datetime}
    members = {"__module__": __name__, "__annotations__": annotations, "user": field(key=True), "made": made}
    return index(dataset(type(name, (), members)))


Old, New, Newer = counted("Old", "forever"), counted("New", "1d"), counted("Newer", "2d")


class Steps:
    """The steps that run beside the live job, stopped at their beginning."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.ran = threading.Event(), threading.Event(), 0
        self.failure: Exception | None = None

    def begin(self) -> None:
        """Wait until they may go on."""
        self.ran += 1
        self.begun.set()
        assert self.go_on.wait(2 * PATIENCE)
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    stopped, run = Steps(), backfill_step.BackfillStep.run

    def begun(self: Any, *args: Any, is_live: bool) -> bool:
        if threading.current_thread().name == "backfill":
            stopped.begin()
        return run(self, *args, is_live=is_live)

    monkeypatch.setattr(backfill_step.BackfillStep, "run", begun)
    monkeypatch.setattr(backfill_step, "ROWS_BESIDE", 400)
    monkeypatch.setattr(backfill, "LIVE_ROWS", 300)
    monkeypatch.setattr(backfill, "LAST_ROWS", 100)
    monkeypatch.setattr(backfill_step, "LIVE_ROWS", 300)
    monkeypatch.setattr(pace, "LIVE_FOR", 600.0)  # a slow machine is no reason to end it
    yield stopped
    stopped.go_on.set()


@contextmanager
def running(folder: Path, spark: Any, *, closing: bool = True) -> Iterator[tuple[Deployed, Any]]:
    """Run a deployment with some history and a dataset of it; yields it, and what waits for rows."""
    deployed = Deployed(folder, budget=1)
    deployed.commit([Visit, Old])
    for _ in range(REQUESTS):
        visit(deployed, ROWS, padding=300_000)  # a batch of its own
    with live(deployed, spark, small=1 << 40) as caught_up:
        caught_up({"Visit": ROWS * REQUESTS})
        yield deployed, caught_up
    if closing:
        deployed.close()


def visit(deployed: Deployed, rows: int, padding: int = 0) -> None:
    visits = ",".join(f'{{"user": {number % USERS}, "at": "2024-01-01T12:00:00Z"}}' for number in range(rows))
    deployed.log_bytes("visits", f"[{visits}]".encode() + b" " * padding, rows)


def visits(deployed: Deployed, name: str) -> list[int]:
    keys = [{"user": user} for user in range(USERS)]
    return [row["visits"] for row in deployed.lookup(name, keys, [NOON] * USERS)]


def is_serving(deployed: Deployed) -> bool:
    return branch_status(deployed.deployment, "main")["state"] == "serving"


def test_live_batches_go_on_beside_a_step(tmp_path: Path, spark: Any, steps: Steps) -> None:
    with running(tmp_path, spark) as (deployed, caught_up):
        deployed.commit([Visit, Old, New])
        assert steps.begun.wait(300)
        for number in range(5):
            visit(deployed, USERS)
            caught_up({"Visit": ROWS * REQUESTS + USERS * (number + 1)})
        assert visits(deployed, "Old") == [ROWS * REQUESTS // USERS + 5] * USERS
        assert not is_serving(deployed)
        steps.go_on.set()
        wait_until(lambda: is_serving(deployed), lambda: deployed.deployment.backfill_state())
        assert steps.ran > 1
        assert visits(deployed, "New") == visits(deployed, "Old") == [ROWS * REQUESTS // USERS + 5] * USERS
        visit(deployed, USERS)
        caught_up({"Visit": ROWS * REQUESTS + USERS * 6})
        assert visits(deployed, "New") == visits(deployed, "Old") == [ROWS * REQUESTS // USERS + 6] * USERS


def test_steps_beside_live_batches_have_a_low_priority(
    tmp_path: Path, spark: Any, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, opened = list[bool](), tasks.BatchContext.of

    def of(*args: Any, **options: Any) -> Any:
        context = opened(*args, **options)
        if context.stamp.batch < 0:
            found.append(context.yields)
        return context

    monkeypatch.setattr(tasks.BatchContext, "of", of)
    steps.go_on.set()
    with running(tmp_path, spark) as (deployed, _):
        deployed.commit([Visit, Old, New])
        wait_until(lambda: is_serving(deployed), lambda: deployed.deployment.backfill_state())
        low = min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19)
        workers = [each.nice() for each in psutil.Process().children(recursive=True) if each.name() != "java"]
    assert found
    assert all(found)
    assert low in workers


def test_a_step_that_fails_is_reported_and_tried_again(tmp_path: Path, spark: Any, steps: Steps) -> None:
    steps.failure = OSError("no such share")
    steps.go_on.set()
    with running(tmp_path, spark) as (deployed, _):
        deployed.commit([Visit, Old, New])
        wait_until(lambda: is_serving(deployed), lambda: deployed.deployment.backfill_state())
        events = [event.text for event in deployed.deployment.catalog.events(100)]
        assert len([text for text in events if "no such share" in text]) == 1
        assert visits(deployed, "New") == visits(deployed, "Old")


def test_no_batch_waits_for_a_step_whose_result_a_commit_removed(tmp_path: Path, spark: Any, steps: Steps) -> None:
    with running(tmp_path, spark) as (deployed, caught_up):
        place = deployed.deployment
        deployed.commit([Visit, Old, New])
        assert steps.begun.wait(300)
        removed = set(place.backfill_state().state_ids)
        deployed.commit([Visit, Old])
        for number in range(3):
            visit(deployed, USERS)
            caught_up({"Visit": ROWS * REQUESTS + USERS * (number + 1)})
        assert visits(deployed, "Old") == [ROWS * REQUESTS // USERS + 3] * USERS
        assert not steps.go_on.is_set()
        steps.go_on.set()
        sent = 3
        while place.backfill_state().state_ids:
            sent += 1  # a batch with rows sees that it has ended; one without them comes in a minute
            visit(deployed, USERS)
            caught_up({"Visit": ROWS * REQUESTS + USERS * sent})
        deployed.commit([Visit, Old, New])  # computed anew
        wait_until(lambda: removed <= place.catalog.backfilled(), place.backfill_state)
        wait_until(lambda: is_serving(deployed), place.backfill_state)
        assert visits(deployed, "New") == visits(deployed, "Old")


def test_a_commit_during_a_step_begins_its_own_when_that_has_ended(tmp_path: Path, spark: Any, steps: Steps) -> None:
    with running(tmp_path, spark) as (deployed, caught_up):
        place = deployed.deployment
        deployed.commit([Visit, Old, New])
        assert steps.begun.wait(300)
        steps.failure = OSError("of the first commit")  # which no longer counts
        deployed.commit([Visit, Old, Newer])
        visit(deployed, USERS)
        caught_up({"Visit": ROWS * REQUESTS + USERS})
        deployed.commit([Visit, Old, New, Newer])
        visit(deployed, USERS)
        caught_up({"Visit": ROWS * REQUESTS + USERS * 2})
        assert steps.ran == 1
        steps.go_on.set()
        wait_until(lambda: is_serving(deployed), place.backfill_state)
        expected = [ROWS * REQUESTS // USERS + 2] * USERS
        assert visits(deployed, "New") == visits(deployed, "Newer") == visits(deployed, "Old") == expected
        assert not [event.text for event in place.catalog.events(100) if "of the first commit" in event.text]


def test_a_stop_during_a_step_is_no_failure(tmp_path: Path, spark: Any, steps: Steps) -> None:
    steps.go_on.set()
    with running(tmp_path, spark, closing=False) as (deployed, _):
        pass
    steps.go_on.clear()
    deployed.commit([Visit, Old, New])
    place, job = deployed.deployment, LiveJob(deployed.deployment, spark, small=1 << 40)
    query = job.start()
    wait_until(lambda: visited(deployed) and steps.begun.is_set(), place.backfill_state)
    steps.failure = RuntimeError("the jobs were cancelled")
    threading.Timer(1.0, steps.go_on.set).start()
    job.close()  # as the command does: the query still runs
    visit(deployed, USERS)
    time.sleep(3.0)
    query.stop()
    assert place.backfill_state().failures == 0
    assert not [event.text for event in place.catalog.events(100) if "cancelled" in event.text]
    with live(deployed, spark, small=1 << 40):
        wait_until(lambda: is_serving(deployed), place.backfill_state)
    assert visits(deployed, "New") == visits(deployed, "Old")
    deployed.close()


def visited(deployed: Deployed) -> bool:
    """Send rows, so that steps run beside batches."""
    visit(deployed, USERS)
    time.sleep(0.2)
    return True


def test_the_step_of_a_worker_that_was_replaced_changes_nothing(
    tmp_path: Path, spark: Any, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "STOPPED_WITHIN", 0.1)
    deployed = Deployed(tmp_path, budget=1)
    with running(tmp_path, spark, closing=False) as (former, _):
        former.commit([Visit, Old, New])
        assert steps.begun.wait(300)
    (late,) = [thread for thread in threading.enumerate() if thread.name == "backfill"]
    monkeypatch.setattr(backfill, "LIVE_ROWS", 1 << 40)
    monkeypatch.setattr(backfill, "LAST_ROWS", 1 << 40)  # the new worker's steps are between its batches
    with live(deployed, spark, small=1 << 40) as caught_up:
        wait_until(lambda: is_serving(deployed), lambda: deployed.deployment.backfill_state())
        visit(deployed, USERS)
        caught_up({"Visit": ROWS * REQUESTS + USERS})
        expected = [ROWS * REQUESTS // USERS + 1] * USERS
        assert visits(deployed, "New") == expected
        steps.go_on.set()
        late.join(300)
        assert not late.is_alive()
        visit(deployed, USERS)
        caught_up({"Visit": ROWS * REQUESTS + 2 * USERS})
        assert visits(deployed, "New") == visits(deployed, "Old") == [each + 1 for each in expected]
    former.close()
    deployed.close()
