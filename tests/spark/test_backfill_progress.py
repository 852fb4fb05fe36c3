"""A backfill by a worker: what the plan said of it, its progress meanwhile, and the rate that the next plan uses."""

from __future__ import annotations

import base64
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.deployed import Deployed, live, wait_until
from umbel.api.commit import check_commit
from umbel.connectors import Webhook, source
from umbel.datasets import Count, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.runtime.backfill_state import BACKFILL
from umbel.runtime.commit_plan import plan
from umbel.runtime.deployment import Deployment
from umbel.runtime.switching import branch_status
from umbel.spark import backfill_step

__owner__ = "tests@example.com"
ROWS, REQUESTS = 10_000, 4
NOON = "2024-01-01T12:00:00Z"


@source(Webhook(name="web").endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visit:
    user: int
    at: datetime


def counted(version: int, window: str) -> Any:
    @index
    @dataset(version=version)
    class Visits:
        user: int = field(key=True)
        visits: int
        at: datetime

        @pipeline
        @inputs(Visit)
        def made(cls, rows):
            return rows.groupby("user").aggregate(visits=Count(window=Continuous(window)))

    return Visits


def check_progress(seen: list[dict[str, Any]]) -> None:
    """Check the statuses noted during a backfill."""
    steps = [each for each in seen if each["rows_per_second"] is not None]
    assert steps
    assert {each["rows_total"] for each in steps} == {ROWS * REQUESTS}
    done = [each["rows_done"] for each in steps]
    assert done == sorted(done)
    assert len(set(done)) > 1  # it went by steps
    assert all(each["seconds_left"] is not None for each in steps)


def test_a_plan_then_its_backfill_then_the_measured_rate(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ROWS_AT_ONCE", "ROWS_BESIDE", "LIVE_ROWS"):
        monkeypatch.setattr(backfill_step, name, ROWS)
    deployed = Deployed(tmp_path, budget=1)  # a batch for each request
    place: Deployment = deployed.deployment
    deployed.commit([Visit, counted(1, "1h")])
    payload = orjson.dumps([{"user": n % 7, "at": NOON} for n in range(ROWS)])
    for _ in range(REQUESTS):
        deployed.log_bytes("visits", payload + b" " * 300_000, ROWS)
    seen = []
    noted = place.catalog.note
    with live(deployed, spark, small=1 << 40) as caught_up:
        caught_up({"Visit": ROWS * REQUESTS})
        monkeypatch.setattr(
            place.catalog, "note", lambda *note: (noted(*note), seen.append(branch_status(place, "main")))
        )
        raised = check_commit([Visit, counted(2, "1d")], ())
        made = plan(place, raised)
        assert made.history is not None
        assert (made.history.rows, made.history.inputs, made.log_rate.is_measured) == (
            ROWS * REQUESTS,
            ["Visit"],
            False,
        )
        deployed.commit([Visit, counted(2, "1d")])
        wait_until(lambda: branch_status(place, "main")["state"] == "serving", lambda: branch_status(place, "main"))
    check_progress(seen)
    again = plan(place, check_commit([Visit, counted(3, "2d")], ()))
    assert again.log_rate.is_measured
    assert again.history is not None
    assert again.history.seconds == pytest.approx(ROWS * REQUESTS / again.log_rate.rows_per_second)
    assert again.source_rate.is_measured  # it was behind when it read the first rows
    removed = plan(place, check_commit([Visit], ()))
    assert [each.change for each in removed.objects if each.name == "Visits"] == ["removed", "removed"]
    deployed.close()


@source(Webhook(name="web").endpoint("notes"), disorder="1d", cdc="append")
@dataset
class Note:
    user: int
    text: str
    at: datetime


@index
@dataset
class Notes:
    user: int = field(key=True)
    notes: int
    at: datetime

    @pipeline
    @inputs(Note)
    def made(cls, rows):
        return rows.groupby("user").aggregate(notes=Count(window=Continuous("1h")))


@pytest.mark.parametrize(("bytes_at_once", "steps"), [(1 << 30, 1), (60_000, 4)])
def test_steps_have_fewer_rows_where_rows_are_wide(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, bytes_at_once: int, steps: int
) -> None:
    monkeypatch.setattr(backfill_step, "BYTES_AT_ONCE", bytes_at_once)
    deployed = Deployed(tmp_path, budget=1)
    deployed.commit([Note])
    for _ in range(8):
        rows = [{"user": n, "text": base64.b64encode(os.urandom(1_800)).decode(), "at": NOON} for n in range(200)]
        deployed.log_bytes("notes", orjson.dumps(rows), 200)
    done, noted = list[int](), deployed.deployment.catalog.note

    def note(name: str, value: Any, *by: Any) -> None:
        noted(name, value, *by)
        if name == BACKFILL:
            done.append(value["done"])

    with live(deployed, spark, small=0) as caught_up:
        caught_up({"Note": 1_600})
        monkeypatch.setattr(deployed.deployment.catalog, "note", note)
        deployed.commit([Note, Notes])
        wait_until(lambda: branch_status(deployed.deployment, "main")["state"] == "serving", lambda: done)
    assert len({*done} - {0}) >= steps, done
    assert steps > 1 or {*done} == {0, 1_600}, done
    deployed.close()
