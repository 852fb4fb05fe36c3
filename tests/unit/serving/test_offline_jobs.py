"""Offline queries that run as jobs: refused at once, cancelled, gone on with, given up."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import wait_until
from tests.unit.serving.conftest import NOON, Served
from tests.unit.serving.flights import Plane
from tests.unit.serving.jobs import (
    OUTPUTS,
    PATH,
    ask,
    driven,
    ended,
    errors_of,
    found,
    lines,
    many,
    place,
    queried_at_once,
    rows_of,
    small_parts,
    worked,
)
from umbel.api.commit import check_commit
from umbel.catalog.offline_jobs import OfflineJob, OfflineJobs
from umbel.catalog.tables import OfflineJobRow
from umbel.connectors.buckets import LOCATION
from umbel.errors import Transient, UmbelError
from umbel.offline import driver, runner
from umbel.offline.answers import answer_part
from umbel.offline.driver import LOCK, Progress, in_this_process
from umbel.offline.locations import own_folder, work_folder
from umbel.offline.parts import InputPart
from umbel.offline.runner import OfflineRunner
from umbel.processes.locks import alone
from umbel.runtime.commit import commit

NEEDED = OfflineRunner._is_needed
JSON = {"Content-Type": "application/json"}


def test_a_query_that_fails_on_every_row_fails(idle: Served, buckets: Path) -> None:
    lines(buckets / "data/in/nobody/a.json", [{"Greeting.name": "nobody", "at": NOON}] * 300)
    query = {"inputs": ["Greeting.name"], "outputs": ["Greeting.text"]}
    report = worked(idle, ask(idle, query | {"input": place("in/nobody"), "output": place("out/nobody")}))
    assert report["status"] == "FAILED"
    assert "nobody is not somebody" in report["reason"]
    assert found(buckets, report) == []


ROW = {"Origin.origin": "JFK", "at": NOON}
REFUSED: list[tuple[list[Any] | None, dict[str, Any], str]] = [
    (None, {}, "the input is empty: bucket 'data' has no files"),
    ([], {}, "the input is empty: no file has rows"),
    ([{"at": NOON}], {}, "misses columns ['Origin.origin']"),
    ([{"Origin.origin": "JFK", "when": NOON}], {}, "misses timestamp column 'at'"),
    ([ROW], {"feature_to_column_map": {"Origin.origin": "who"}}, "misses columns ['who']"),
    ([ROW], {"feature_to_column_map": {"Origin.average": "x"}}, "which are no inputs"),
    ([ROW], {"feature_to_column_map": {"Origin.origin": "at"}}, "column 'at' would be of type"),
    ([ROW], {"feature_to_column_map": 3}, "must be an object of names"),
    ([ROW], {"outputs": ["Orgin"]}, "did you mean 'Origin'"),
    ([ROW], {"data": []}, "either as 'data' or in 'input'"),
    ([ROW], {"inputs": []}, "No extractor found"),
    ([ROW], {"output": {"bucket": "none", "prefix": "x"}}, "bucket 'none'"),
    ([ROW], {"output": {"bucket": "..", "prefix": "x"}}, "no name of a bucket"),
    ([ROW], {"output": {"bucket": "data", "prefix": "../x"}}, "no path in a bucket"),
    ([ROW], {"output": {"bucket": "data", "path": "x/%Y"}}, "no wildcards"),
    ([ROW], {"output": {"bucket": "data", "prefix": "x", "format": "delta"}}, "'delta'"),
    ([ROW], {"output": {"prefix": "x"}}, "lacks its 'bucket'"),
    ([ROW], {"output": "s3://x"}, "must be an object"),
    ([ROW], {"output": {"type": "KafkaConnector"}}, "must be a place on S3"),
    (
        [ROW],
        {"output": {"bucket": "data", "prefix": "x", "format": {"headers": ["a"]}}},
        "5 columns, and the CSV format of the output 1 headers",
    ),
]


@pytest.mark.parametrize(("rows", "changes", "words"), REFUSED)
def test_queries_that_are_refused_at_once(
    idle: Served, buckets: Path, rows: list[Any] | None, changes: dict[str, Any], words: str, request: Any
) -> None:
    prefix = f"in/refused-{abs(hash(request.node.name))}"
    if rows is not None:
        lines(buckets / "data" / prefix / "a.json", rows)
    body = {"inputs": ["Origin.origin"], "outputs": OUTPUTS, "timestamp_column": "at", "input": place(prefix)} | changes
    answer = idle.post(PATH, body)
    assert (400 <= answer.status_code < 500, words in answer.json()["message"]) == (True, True), answer.text


def test_jobs_that_do_not_exist(offline: Served) -> None:
    for answer in (
        offline.http.get(f"{PATH}/status", params={"request_id": "7"}),
        offline.http.post(f"{PATH}/cancel", headers=JSON, params={"request_id": "7"}),
    ):
        assert (answer.status_code, "no offline query '7'" in answer.json()["message"]) == (404, True)
    assert offline.http.get(f"{PATH}/status").status_code == 400


def test_a_cancelled_job_stops_and_has_no_marker(idle: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    lines(buckets / "data/in/cancel/a.json", many(100))
    lines(buckets / "data/in/cancel/b.json", many(100))
    report = ask(idle, {"input": place("in/cancel"), "output": place("out/cancel")})
    jobs = OfflineJobs(idle.deployment.catalog)

    def one_and_cancel(job: OfflineJob, parts: Sequence[InputPart], progress: Progress) -> None:
        progress.add(answer_part(idle.deployment, job.id, parts[0]))
        idle.http.post(f"{PATH}/cancel", headers=JSON, params={"request_id": job.id})
        progress.add(answer_part(idle.deployment, job.id, parts[1]))

    driven(idle, one_and_cancel).run(jobs.get(report["request_id"]))
    report = idle.http.get(f"{PATH}/status", params={"request_id": report["request_id"]}).json()
    assert (report["status"], report["completion_rate"]) == ("CANCELLED", pytest.approx(0.0, abs=0.51))
    assert not jobs.is_open(report["request_id"])
    assert Path("_SUCCESS") not in found(buckets, report)
    assert idle.http.post(f"{PATH}/cancel", headers=JSON, params={"request_id": report["request_id"]}).json() == report
    with idle.deployment.catalog.sessions() as session:
        assert session.get_one(OfflineJobRow, report["request_id"]).request == b""  # credentials are not stored


def test_a_job_that_is_cancelled_while_a_part_is_answered(
    idle: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "EVERY", 0.05)
    lines(buckets / "data/in/during/a.json", many(10))
    report = ask(idle, {"input": place("in/during"), "output": place("out/during")})
    noticed = threading.Event()

    def hang(*_: Any) -> Any:
        idle.http.post(f"{PATH}/cancel", headers=JSON, params={"request_id": report["request_id"]})
        assert noticed.wait(300)
        raise UmbelError("late")

    monkeypatch.setattr("umbel.offline.answers.JobAnswers.answer", hang)
    job = OfflineJobs(idle.deployment.catalog).get(report["request_id"])
    driven(idle, in_this_process(idle.deployment, noticed.set)).run(job)
    assert ended(idle, report)["status"] == "CANCELLED"


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_job_goes_on_with_the_parts_that_are_left(
    idle: Served, buckets: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    rows, prefix = many(150), f"in/resume-{stop}"
    lines(buckets / "data" / prefix / "a.json", [*rows[:80], b"{\n"])
    lines(buckets / "data" / prefix / "b.json.gz", rows[80:])
    report = ask(idle, {"input": place(prefix), "output": place(f"out/resume-{stop}")})
    jobs, attempts = OfflineJobs(idle.deployment.catalog), list[list[int]]()

    def dies(job: OfflineJob, parts: Sequence[InputPart], progress: Progress) -> None:
        attempts.append([each.number for each in parts])
        for count, part in enumerate(parts, 1):
            found = answer_part(idle.deployment, job.id, part)
            if count == stop:
                raise KeyboardInterrupt  # the part is there, and not recorded
            progress.add(found)

    with pytest.raises(KeyboardInterrupt):
        driven(idle, dies).run(jobs.get(report["request_id"]))
    again = jobs.get(report["request_id"])
    assert (again.status, again.attempts) == ("RUNNING", 1 if stop == 1 else 0)
    with suppress(KeyboardInterrupt):  # there may be fewer left
        driven(idle, dies).run(again)
    assert attempts[1] == attempts[0][stop - 1 :]
    report = worked(idle, report)
    assert (report["status"], report["failure_rate"]) == ("COMPLETED", 1 / 151)
    assert rows_of(buckets, report) == queried_at_once(idle, rows)
    assert len(errors_of(buckets, report)) == 1


def test_parts_of_another_plan_are_answered_anew(idle: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = many(150)
    lines(buckets / "data/in/plan/a.json", rows)
    report = ask(idle, {"input": place("in/plan"), "output": place("out/plan")})
    jobs = OfflineJobs(idle.deployment.catalog)

    def dies(job: OfflineJob, parts: Sequence[InputPart], progress: Progress) -> None:
        for part in parts:
            progress.add(answer_part(idle.deployment, job.id, part))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        small_parts(patch)
        with pytest.raises(KeyboardInterrupt):
            driven(idle, dies).run(jobs.get(report["request_id"]))
    assert len(found(buckets, report)) > 2
    report = worked(idle, report)
    assert [str(path) for path in found(buckets, report)] == ["_SUCCESS", "part-00000.json"]
    assert rows_of(buckets, report) == queried_at_once(idle, rows)


def test_a_job_that_ends_its_process_each_time_fails(idle: Served, buckets: Path) -> None:
    lines(buckets / "data/in/dies/a.json", many(5))
    report = ask(idle, {"input": place("in/dies"), "output": place("out/dies")})
    jobs = OfflineJobs(idle.deployment.catalog)
    for _ in range(5):
        assert jobs.begin(jobs.get(report["request_id"])) is not None
        jobs.interrupted("its process ended with -9", counts=True)
    assert jobs.begin(jobs.get(report["request_id"])) is None
    report = ended(idle, report)
    assert (report["status"], "ended with -9" in report["reason"]) == ("FAILED", True)


def test_a_server_that_is_stopped_costs_no_attempt(idle: Served, buckets: Path) -> None:
    lines(buckets / "data/in/stopped/a.json", many(5))
    report = ask(idle, {"input": place("in/stopped"), "output": place("out/stopped")})
    jobs = OfflineJobs(idle.deployment.catalog)
    for _ in range(7):
        assert jobs.begin(jobs.get(report["request_id"])) is not None
        jobs.interrupted(counts=False)
    assert worked(idle, report)["status"] == "COMPLETED"


@pytest.mark.parametrize(("number", "attempts"), [("TERM", 0), ("INT", 0), ("HUP", 0), ("KILL", 1)])
def test_a_driver_that_gets_a_signal(
    idle: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch, number: str, attempts: int
) -> None:
    lines(buckets / f"data/in/{number}/a.json", many(5))
    report = ask(idle, {"input": place(f"in/{number}")})
    jobs = OfflineJobs(idle.deployment.catalog)
    jobs.begin(jobs.get(report["request_id"]))
    monkeypatch.setattr(runner, "_started", lambda *_: subprocess.Popen(["bash", "-c", f"kill -{number} $$"]))
    asyncio.run(OfflineRunner(idle.deployment)._drive())
    assert jobs.get(report["request_id"]).attempts == attempts
    idle.http.post(f"{PATH}/cancel", headers=JSON, params={"request_id": report["request_id"]})


def test_jobs_with_failed_attempts_come_last(idle: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "PAUSE", 0.01)
    lines(buckets / "data/in/order/a.json", many(5))
    first, second = (ask(idle, {"input": place("in/order")})["request_id"] for _ in range(2))
    jobs, order = OfflineJobs(idle.deployment.catalog), list[str]()

    def fails_once(job: OfflineJob, parts: Sequence[InputPart], progress: Progress) -> None:
        order.append(job.id)
        if job.id == first and order.count(first) == 1:
            raise Transient("the storage is away")
        in_this_process(idle.deployment)(job, parts, progress)

    driven(idle, fails_once).run_open()
    assert order == [first, second, first]
    assert not jobs.has_open()


def test_input_that_was_deleted_meanwhile(idle: Served, buckets: Path) -> None:
    lines(buckets / "data/in/gone/a.json", many(5))
    report = ask(idle, {"input": place("in/gone"), "output": place("out/gone")})
    (buckets / "data/in/gone/a.json").unlink()
    report = worked(idle, report)
    assert (report["status"], "it was removed" in report["reason"]) == ("FAILED", True)


def test_input_that_was_changed_meanwhile(idle: Served, buckets: Path) -> None:
    lines(buckets / "data/in/changed/a.json", many(5))
    report = ask(idle, {"input": place("in/changed"), "output": place("out/changed")})
    lines(buckets / "data/in/changed/a.json", many(6))
    report = worked(idle, report)
    assert (report["status"], "'in/changed/a.json' was changed meanwhile" in report["reason"]) == ("FAILED", True)
    assert found(buckets, report) == []


def test_storage_that_is_away_for_a_while(idle: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = many(5)
    lines(buckets / "data/in/away/a.json", rows)
    report = ask(idle, {"input": place("in/away"), "output": place("out/away")})
    with monkeypatch.context() as patch:
        patch.delenv(LOCATION)
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        report = worked(idle, report)
    assert (report["status"], "try again" in report["reason"]) == ("RUNNING", True)
    report = worked(idle, report)
    assert (report["status"], "reason" in report) == ("COMPLETED", False)
    assert rows_of(buckets, report) == queried_at_once(idle, rows)


def test_data_that_was_committed_anew_meanwhile(idle: Served, buckets: Path) -> None:
    lines(buckets / "data/in/anew/a.json", many(5))
    idle.http.post("/api/v1/init", json={"branch": "anew", "clone_from": "main"})
    report = ask(idle, {"input": place("in/anew"), "output": place("out/anew")}, branch="anew")
    assert commit(idle.deployment, check_commit([Plane], []), branch="anew")["removed"]
    report = worked(idle, report)
    assert (report["status"], "dataset 'DelayOfOrigin' of branch 'anew' was changed" in report["reason"]) == (
        "FAILED",
        True,
    )


@pytest.mark.parametrize("error", [OSError("no processes left"), RuntimeError("whatever it is")])
def test_a_process_that_cannot_be_started_is_tried_again(
    offline: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    started, tried = runner._started, list[Any]()

    def once_in_vain(*args: Any) -> Any:
        tried.append(args)
        if len(tried) == 1:
            raise error
        return started(*args)

    monkeypatch.setattr(runner, "_started", once_in_vain)
    rows, prefix = many(3), f"in/started-{type(error).__name__}"
    lines(buckets / "data" / prefix / "a.json", rows)
    report = ended(offline, ask(offline, {"input": place(prefix), "output": place("out/started")}))
    assert (report["status"], len(tried)) == ("COMPLETED", 2)
    assert rows_of(buckets, report) == queried_at_once(offline, rows)
    folder = work_folder(offline.deployment, report["request_id"])
    wait_until(lambda: not folder.exists(), lambda: folder)


def test_a_process_that_ends(offline: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, tried = runner.DRIVER, list[Any]()
    started = runner._started

    def ends_once(*args: Any) -> Any:
        tried.append(args)
        monkeypatch.setattr(runner, "DRIVER", "umbel.no_such_module" if len(tried) == 1 else module)
        return started(*args)

    monkeypatch.setattr(runner, "_started", ends_once)
    lines(buckets / "data/in/ends/a.json", many(3))
    report = ended(offline, ask(offline, {"input": place("in/ends"), "output": place("out/ends")}))
    assert (report["status"], len(tried)) == ("COMPLETED", 2)


def test_no_process_is_started_where_another_has_the_lock(idle: Served, buckets: Path) -> None:
    lines(buckets / "data/in/lock/a.json", many(3))
    report = ask(idle, {"input": place("in/lock")})
    mine = OfflineRunner(idle.deployment)
    is_needed = NEEDED
    assert is_needed(mine)
    with alone(idle.deployment.directory, LOCK):
        assert not is_needed(mine)
    assert worked(idle, report)["status"] == "COMPLETED"
    assert not is_needed(mine)


def test_tasks_of_the_same_part_share_no_files(idle: Served) -> None:
    with own_folder(idle.deployment, "shared") as first, own_folder(idle.deployment, "shared") as second:
        assert first != second
    assert not first.exists()


def test_what_ended_jobs_had_on_the_way_is_deleted(idle: Served, buckets: Path) -> None:
    lines(buckets / "data/in/left/a.json", many(5))
    ended, open_one = (ask(idle, {"input": place("in/left")})["request_id"] for _ in range(2))
    idle.http.post(f"{PATH}/cancel", headers=JSON, params={"request_id": ended})
    for request in (ended, open_one):
        (work_folder(idle.deployment, request) / "deep").mkdir(parents=True)
    OfflineRunner(idle.deployment)._tidy()
    assert not work_folder(idle.deployment, ended).exists()
    assert work_folder(idle.deployment, open_one).exists()
    idle.http.post(f"{PATH}/cancel", headers=JSON, params={"request_id": open_one})
