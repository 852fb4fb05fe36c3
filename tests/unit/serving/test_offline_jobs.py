"""Offline queries that run as jobs: refused at once, cancelled, resumed, given up."""

from __future__ import annotations

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
    ended,
    errors_of,
    found,
    lines,
    many,
    place,
    queried_at_once,
    rows_of,
    worked,
)
from umbel.api.commit import check_commit
from umbel.catalog.offline_jobs import LEASE, OfflineJobs
from umbel.catalog.tables import OfflineJobRow
from umbel.connectors.buckets import LOCATION
from umbel.errors import UmbelError
from umbel.offline import runner
from umbel.offline.locations import own_folder, work_folder
from umbel.offline.run import Run
from umbel.offline.runner import OfflineRunner
from umbel.runtime.commit import commit

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


def test_a_cancelled_job_stops_and_has_no_marker(idle: Served, buckets: Path, tmp_path: Path) -> None:
    lines(buckets / "data/in/cancel/a.json", many(100))
    lines(buckets / "data/in/cancel/b.json", many(100))
    report = ask(idle, {"input": place("in/cancel"), "output": place("out/cancel")})
    jobs = OfflineJobs(idle.deployment.catalog)
    job = jobs.claim()
    assert job is not None
    run = Run(idle.deployment, job, tmp_path, part_rows=1)
    put, parts = run._put, list[Any]()

    def once(*args: Any) -> None:
        put(*args)
        parts.append(args)
        idle.http.post(f"{PATH}/cancel", headers=JSON, params={"request_id": job.id})

    run._put = once  # type: ignore[method-assign]
    with pytest.raises(UmbelError, match="cancelled"):
        run.finish()
    report = idle.http.get(f"{PATH}/status", params={"request_id": job.id}).json()
    assert (report["status"], report["completion_rate"]) == ("CANCELLED", pytest.approx(0.0, abs=0.51))
    assert not jobs.beat(job)
    assert Path("_SUCCESS") not in found(buckets, report)
    assert idle.http.post(f"{PATH}/cancel", headers=JSON, params={"request_id": job.id}).json() == report
    with idle.deployment.catalog.sessions() as session:
        assert session.get_one(OfflineJobRow, job.id).request == b""  # credentials are not stored


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_job_is_resumed_where_its_parts_end(
    idle: Served, buckets: Path, stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umbel.offline.inputs.BATCH_READS", 1)
    monkeypatch.setattr("umbel.offline.inputs.PIECE_BYTES", 2000)
    rows, prefix = many(150), f"in/resume-{stop}"
    lines(buckets / "data" / prefix / "a.json", [*rows[:80], b"{\n"])
    lines(buckets / "data" / prefix / "b.json.gz", rows[80:])
    report = ask(idle, {"input": place(prefix), "output": place(f"out/resume-{stop}")})
    jobs = OfflineJobs(idle.deployment.catalog)
    job = jobs.claim()
    assert job is not None
    run = Run(idle.deployment, job, tmp_path, part_rows=25)
    put, count = run._output.put, 0

    def dies(part: Any) -> None:
        nonlocal count
        put(part)  # the part is there, and not recorded
        count += 1
        if count == stop:
            raise KeyboardInterrupt

    run._output.put = dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run.finish()
    assert jobs.claim() is None  # its lease has not run out
    monkeypatch.setattr("umbel.catalog.offline_jobs.LEASE", -LEASE)
    again = jobs.claim()
    assert again is not None
    assert (again.id, again.epoch, again.attempts) == (job.id, job.epoch + 1, 2 if stop == 1 else 1)
    with pytest.raises(UmbelError, match="another process"):
        jobs.record(job, done=0.5)
    Run(idle.deployment, again, tmp_path, part_rows=25).finish()
    report = ended(idle, report)
    assert (report["status"], report["failure_rate"]) == ("COMPLETED", 1 / 151)
    assert rows_of(buckets, report) == queried_at_once(idle, rows)
    assert len(errors_of(buckets, report)) == 1


def test_a_job_that_ends_its_process_each_time_fails(
    idle: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines(buckets / "data/in/dies/a.json", many(5))
    report = ask(idle, {"input": place("in/dies"), "output": place("out/dies")})
    jobs = OfflineJobs(idle.deployment.catalog)
    for _ in range(5):
        job = jobs.claim()
        assert job is not None
        jobs.release(job, "its process ended with -9")
    assert jobs.claim() is None
    report = ended(idle, report)
    assert (report["status"], "ended with -9" in report["reason"]) == ("FAILED", True)


def test_input_that_was_deleted_meanwhile(idle: Served, buckets: Path) -> None:
    lines(buckets / "data/in/gone/a.json", many(5))
    report = ask(idle, {"input": place("in/gone"), "output": place("out/gone")})
    (buckets / "data/in/gone/a.json").unlink()
    report = worked(idle, report)
    assert (report["status"], "not found" in report["reason"]) == ("FAILED", True)


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
    monkeypatch.setattr("umbel.catalog.offline_jobs.LEASE", -LEASE)  # the pause before the next attempt is over
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
    started, tried = runner._started, list[str]()

    def once_in_vain(*args: Any) -> Any:
        tried.append(args[1].id)
        (work_folder(offline.deployment, args[1].id) / "0").mkdir(exist_ok=True)  # of one that was killed
        if len(tried) == 1:
            raise error
        return started(*args)

    monkeypatch.setattr(runner, "_started", once_in_vain)
    monkeypatch.setattr("umbel.catalog.offline_jobs.LEASE", 0.5)
    rows, prefix = many(3), f"in/started-{type(error).__name__}"
    lines(buckets / "data" / prefix / "a.json", rows)
    report = ended(offline, ask(offline, {"input": place(prefix), "output": place("out/started")}))
    assert (report["status"], tried) == ("COMPLETED", [report["request_id"]] * 2)
    assert rows_of(buckets, report) == queried_at_once(offline, rows)
    folder = work_folder(offline.deployment, report["request_id"])
    wait_until(lambda: not folder.exists(), lambda: folder)


def test_who_takes_a_job_up_shares_no_files(idle: Served, buckets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines(buckets / "data/in/apart/a.json", many(3))
    report = ask(idle, {"input": place("in/apart")})
    jobs = OfflineJobs(idle.deployment.catalog)
    first = jobs.claim()
    monkeypatch.setattr("umbel.catalog.offline_jobs.LEASE", -LEASE)
    second = jobs.claim()
    assert first is not None
    assert second is not None
    assert own_folder(idle.deployment, first) != own_folder(idle.deployment, second)
    idle.http.post(f"{PATH}/cancel", headers=JSON, params={"request_id": report["request_id"]})


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
