"""The completion of offline queries: the marker, and files that attempts which were killed have left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.unit.serving.conftest import Served
from tests.unit.serving.jobs import PATH, ask, driven, errors_of, lines, many, place, rows_of, small_parts, worked
from umbel.catalog.offline_jobs import OfflineJob, OfflineJobs
from umbel.errors import InvalidValue, Transient
from umbel.offline.answering import Answering
from umbel.offline.answers import answer_part
from umbel.offline.driver import Progress
from umbel.offline.parts import InputPart

JSON = {"Content-Type": "application/json"}


def test_a_marker_that_cannot_be_written(idle: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines(buckets / "data/in/marker/a.json", many(5))
    report = ask(idle, {"input": place("in/marker"), "output": place("out/marker")})

    def fails(*_: Any) -> None:
        raise Transient("the storage is away")

    with monkeypatch.context() as patch:
        patch.setattr("umbel.offline.driver.succeed", fails)
        for attempt in (0, 1, 2):  # the first has finished a part; those after it have not
            report = worked(idle, report)
            job = OfflineJobs(idle.deployment.catalog).get(report["request_id"])
            assert (job.status, job.attempts) == ("RUNNING", attempt)
    cancelled = idle.http.post(f"{PATH}/cancel", headers=JSON, params={"request_id": report["request_id"]}).json()
    assert cancelled["status"] == "RUNNING"  # all parts are there: it is too late
    report = worked(idle, report)
    assert (report["status"], "reason" in report) == ("COMPLETED", False)


def test_a_job_that_dies_behind_its_marker_is_completed(
    idle: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = buckets / "data/in/behind/a.parquet"
    file.parent.mkdir(parents=True)
    pl.DataFrame(many(5)).with_columns(pl.col("at").str.to_datetime(time_zone="UTC")).write_parquet(file)
    report = ask(idle, {"input": place("in/behind", "parquet"), "output": place("out/behind")})

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OfflineJobs, "end", dies)
        with pytest.raises(KeyboardInterrupt):
            worked(idle, report)
    file.unlink()
    assert worked(idle, report)["status"] == "COMPLETED"
    assert len(rows_of(buckets, report)) == 5


def test_errors_of_rows_that_a_later_attempt_answers_are_deleted(
    idle: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    lines(buckets / "data/in/again/a.json", many(100))
    report = ask(idle, {"input": place("in/again"), "output": place("out/again")})
    job = OfflineJobs(idle.deployment.catalog).get(report["request_id"])

    def dies(job: OfflineJob, parts: Sequence[InputPart], progress: Progress) -> None:
        first, second, *_ = parts
        progress.add(answer_part(idle.deployment, job.id, first))
        with monkeypatch.context() as patch:  # as an extractor that takes too long
            patch.setattr(Answering, "_answer", lambda *_: InvalidValue("it takes too long"))
            patch.setattr(Answering, "_check_readable", lambda *_: None)
            answer_part(idle.deployment, job.id, second)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        driven(idle, dies).run(job)
    assert errors_of(buckets, report)
    report = worked(idle, report)
    assert (report["status"], report["failure_rate"]) == ("COMPLETED", 0.0)
    assert (len(rows_of(buckets, report)), errors_of(buckets, report)) == (100, [])
