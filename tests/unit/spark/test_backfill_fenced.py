"""A worker that was replaced in the middle of a backfill changes nothing of its successor's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.deployed import Deployed
from umbel.catalog.catalog import Catalog
from umbel.connectors import Webhook, source
from umbel.datasets import Count, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.runtime.backfill_state import BACKFILL
from umbel.runtime.batch import drain
from umbel.runtime.deployment import JOB
from umbel.runtime.progress import EventTimeProgress
from umbel.spark import backfill_step
from umbel.spark.backfill import Backfill
from umbel.spark.backfill_step import BackfillStep
from umbel.state.port import Fenced, Stamp

__owner__ = "tests@example.com"
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@source(Webhook(name="web").endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visit:
    user: int
    at: datetime


@dataset(index=True)
class Visits:
    user: int = field(key=True)
    visits: int
    at: datetime

    @pipeline
    @inputs(Visit)
    def made(cls, rows: Any) -> Any:
        return rows.groupby("user").aggregate(visits=Count(window=Continuous("1d")))


class Worker:
    """A worker that computes backfills, in this process."""

    def __init__(self, deployed: Deployed) -> None:
        self.place = deployed.deployment
        self.epoch = self.place.catalog.take_over(JOB)
        session: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
        pace: Any = SimpleNamespace(is_live=True, may_step=True, may_go_on=False, stepped=lambda _: None)
        self.backfill = Backfill(session, self.place, pace)

    def step(self) -> frozenset[str]:
        last = self.place.catalog.progress(JOB, sys.maxsize)
        assert last is not None
        stamp = Stamp(self.epoch, last.number + 1)
        return self.backfill.go_on(self.place.catalog.revision(), stamp, EventTimeProgress(), False)

    def steps(self) -> None:
        for _ in range(20):
            if not self.step():
                return


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    monkeypatch.setattr(backfill_step, "LIVE_ROWS", 4)  # rows of a step
    made = Deployed(tmp_path / "umbel", budget=1)
    made.commit([Visit])
    for minute in range(4):
        rows = [{"user": n % 3, "at": (NOON + timedelta(minutes=minute)).isoformat()} for n in range(4)]
        made.log("visits", rows)
        drain(made.deployment)  # a batch of each
    made.commit([Visit, Visits])
    yield made
    made.close()


PLACES: dict[str, tuple[Any, str]] = {
    "before it begins": (Backfill, "_current"),
    "before a step": (BackfillStep, "run"),
    "before the rows of a step": (BackfillStep, "_run_here"),
    "before state is emptied, or change logs are added to": (Catalog, "without_successor"),
    "after a step": (BackfillStep, "_bury"),
    "before its timers": (BackfillStep, "finish"),
    "before it is done": (Backfill, "_note"),
}


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("place", PLACES)
def test_a_replaced_worker_changes_nothing(
    deployed: Deployed, place: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, catalog = Worker(deployed), deployed.deployment.catalog
    for _ in range(steps):
        assert old.step()
    successor, records = list[Worker](), list[Any]()
    of, name = PLACES[place]
    before: Callable[..., Any] = getattr(of, name)

    def replaced(*args: Any, **options: Any) -> Any:
        if not successor:
            successor.append(Worker(deployed))
            successor[0].step()
            records.append(recorded(catalog))
        return before(*args, **options)

    monkeypatch.setattr(of, name, replaced)
    with pytest.raises(Fenced):
        old.steps()
    monkeypatch.undo()
    monkeypatch.setattr(backfill_step, "LIVE_ROWS", 4)
    assert recorded(catalog) == records[0]
    successor[0].steps()
    found = deployed.lookup("Visits", [{"user": user} for user in range(4)], [NOON + timedelta(hours=1)] * 4)
    assert [None if each is None else each["visits"] for each in found] == [8, 4, 4, None]


def recorded(catalog: Catalog) -> Any:
    return catalog.noted(BACKFILL), catalog.backfilled(), catalog.counts(), catalog.count_dead()
