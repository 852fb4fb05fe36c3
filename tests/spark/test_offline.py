"""Offline queries as Spark jobs: equal to the answers of one process, whatever is killed meanwhile."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import orjson
import polars as pl
import psutil
import pytest

from tests.deployed import wait_until
from tests.unit.serving.conftest import DEPARTURES, NOON, Served, buckets, served_at  # noqa: F401 - a fixture
from tests.unit.serving.jobs import PATH, ask, errors_of, found, lines, many, place, queried_at_once, rows_of, worked
from umbel.catalog.offline_jobs import OfflineJob, OfflineJobs
from umbel.connectors.buckets import LOCATION
from umbel.offline import driver
from umbel.offline.driver import OfflineDriver, Progress
from umbel.offline.parts import InputPart, PartReport
from umbel.offline.runner import OfflineRunner
from umbel.spark import offline as on_cluster
from umbel.spark.offline import SparkParts, reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def served(buckets: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:  # noqa: F811
    """Return a server that starts no drivers, and has parts of some dozen rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(spark.sparkContext.environment, LOCATION, buckets.as_uri())  # the session may be older
        patch.setattr(OfflineRunner, "_is_needed", lambda _: False)
        patch.setattr(driver, "EVERY", 0.1)
        for module in ("inputs", "parts"):
            patch.setattr(f"umbel.offline.{module}.PART_ROWS", 40)
            patch.setattr(f"umbel.offline.{module}.PART_BYTES", 2000)
        for each in served_at(tmp_path_factory.mktemp("served")):
            assert each.log("departures", DEPARTURES).status_code == 200
            each.process()
            yield each


class Counted(SparkParts):
    """Runs parts on Spark, and counts them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.counts = list[int]()

    def __call__(self, job: OfflineJob, parts: Sequence[InputPart], progress: Progress) -> None:
        self.counts.append(len(parts))
        super().__call__(job, parts, progress)


def on_spark(served: Served, spark: SparkSession, report: dict[str, Any]) -> tuple[dict[str, Any], Counted]:
    """Run a job on Spark; return how it is then."""
    parts = Counted(served.deployment, spark)
    OfflineDriver(served.deployment, parts).run(OfflineJobs(served.deployment.catalog).get(report["request_id"]))
    return status(served, report), parts


def status(served: Served, report: dict[str, Any]) -> dict[str, Any]:
    return dict(served.http.get(f"{PATH}/status", params={"request_id": report["request_id"]}).json())


def parquet(
    path: Path, rows: list[dict[str, Any]], group: int, columns: Sequence[str] = ("at", "Origin.origin")
) -> None:
    """Write rows, with their columns in another order and some that nobody asked for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pl.DataFrame(rows).with_columns(pl.col("at").str.to_datetime("%+", time_zone="UTC"), label=pl.lit("x"))
    frame.select("label", *columns).write_parquet(path, row_group_size=group)


@pytest.mark.parametrize("group", [1_000_000, 7, 150])
def test_row_groups_of_any_size(served: Served, spark: SparkSession, buckets: Path, group: int) -> None:  # noqa: F811
    rows, name = many(500), f"groups-{group}"
    parquet(buckets / f"data/in/{name}/a.parquet", rows[:300], group)
    parquet(buckets / f"data/in/{name}/b.parquet", rows[300:301], group)
    parquet(buckets / f"data/in/{name}/c.parquet", rows[301:], group)
    query = {"input": place(f"in/{name}", "parquet"), "output": place(f"out/{name}")}
    report, parts = on_spark(served, spark, ask(served, query))
    assert (report["status"], report["completion_rate"], report["failure_rate"]) == ("COMPLETED", 1.0, 0.0), report
    assert parts.counts[0] >= 500 // 40
    assert rows_of(buckets, report) == queried_at_once(served, rows)
    alone = worked(served, ask(served, query))
    assert found(buckets, alone) == found(buckets, report)
    assert [each.read_bytes() for each in files(buckets, alone)] == [
        each.read_bytes() for each in files(buckets, report)
    ]


def files(buckets: Path, report: dict[str, Any]) -> list[Path]:  # noqa: F811
    return sorted((buckets / report["output_bucket"] / report["output_prefix"]).glob("part-*"))


def test_bad_rows_and_damaged_files(served: Served, spark: SparkSession, buckets: Path) -> None:  # noqa: F811
    rows = many(200)
    lines(buckets / "data/in/bad/a.json", [*rows[:50], b"{broken\n", {"Origin.origin": None, "at": NOON}, *rows[50:]])
    report, _ = on_spark(served, spark, ask(served, {"input": place("in/bad"), "output": place("out/bad")}))
    assert (report["status"], report["failure_rate"]) == ("COMPLETED", 2 / 202)
    assert rows_of(buckets, report) == queried_at_once(served, rows)
    assert [each["field"] for each in errors_of(buckets, report)] == ["", "Origin.origin"]


def test_reports_that_arrive_during_a_look(
    served: Served,
    spark: SparkSession,
    buckets: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A catalog that is slow when the last parts end hides none of them."""
    look = driver.Progress.look

    def slow(progress: driver.Progress) -> None:
        look(progress)
        for each in threading.enumerate():
            if each.name == f"offline-{progress.job.id}":
                each.join(300)

    monkeypatch.setattr(driver.Progress, "look", slow)
    rows = many(200)
    lines(buckets / "data/in/slow/a.json", [*rows, b"{broken\n"])
    report, parts = on_spark(served, spark, ask(served, {"input": place("in/slow"), "output": place("out/slow")}))
    assert (report["status"], report["failure_rate"]) == ("COMPLETED", 1 / 201)
    assert parts.counts[0] > 1
    marker = buckets / report["output_bucket"] / report["output_prefix"] / "_SUCCESS"
    assert orjson.loads(marker.read_bytes())["rows"] == 200


@pytest.mark.parametrize("damage", ["footer", "page", "cut", "none at all"])
def test_damaged_parquet_among_others(served: Served, spark: SparkSession, buckets: Path, damage: str) -> None:  # noqa: F811
    rows, name = many(200), f"damaged-{damage.replace(' ', '-')}"
    parquet(buckets / f"data/in/{name}/a.parquet", rows, 50)
    whole = (buckets / f"data/in/{name}/a.parquet").read_bytes()
    damaged = {
        "footer": whole[:-40] + b"\xff" * 32 + whole[-8:],
        "page": whole[:4] + b"\xff" * 200 + whole[204:],
        "cut": whole[: len(whole) // 2],
        "none at all": b"PAR1",
    }[damage]
    (buckets / f"data/in/{name}/b.parquet").write_bytes(damaged)
    (buckets / f"data/in/{name}/c.parquet").write_bytes(b"")
    query = {"input": place(f"in/{name}", "parquet"), "output": place(f"out/{name}")}
    report, _ = on_spark(served, spark, ask(served, query))
    assert report["status"] == "COMPLETED", report
    assert rows_of(buckets, report)[:200] == queried_at_once(served, rows)
    assert {each["where"].partition(":")[0] for each in errors_of(buckets, report)} == {f"in/{name}/b.parquet"}


def test_no_rows_at_all(served: Served, spark: SparkSession, buckets: Path) -> None:  # noqa: F811
    parquet(buckets / "data/in/none/a.parquet", many(1), 50)
    parquet(buckets / "data/in/none/b.parquet", many(1), 50)
    empty = pl.read_parquet(buckets / "data/in/none/a.parquet").clear()
    report = ask(served, {"input": place("in/none", "parquet"), "output": place("out/none")})
    sizes = [each.stat().st_size for each in sorted((buckets / "data/in/none").iterdir())]
    for each, size in zip(sorted((buckets / "data/in/none").iterdir()), sizes, strict=True):
        empty.write_parquet(each, compression="uncompressed")
        assert each.stat().st_size != size
    report, _ = on_spark(served, spark, report)
    assert (report["status"], "was changed meanwhile" in report["reason"]) == ("FAILED", True)
    report = ask(served, {"input": place("in/none", "parquet"), "output": place("out/none")})
    report, _ = on_spark(served, spark, report)
    assert (report["status"], "the input is empty" in report["reason"]) == ("FAILED", True)
    assert found(buckets, report) == []


def test_a_query_that_fails_on_every_row(served: Served, spark: SparkSession, buckets: Path, monkeypatch: Any) -> None:  # noqa: F811
    for module in ("inputs", "parts"):
        monkeypatch.setattr(f"umbel.offline.{module}.PART_BYTES", 20_000)
    lines(buckets / "data/in/nobody/a.json", [{"Greeting.name": "nobody", "at": NOON}] * 3000)
    query = {"inputs": ["Greeting.name"], "outputs": ["Greeting.text"]}
    report = ask(served, query | {"input": place("in/nobody"), "output": place("out/nobody")})
    report, _ = on_spark(served, spark, report)
    assert (report["status"], "nobody is not somebody" in report["reason"]) == ("FAILED", True)
    assert Path("_SUCCESS") not in found(buckets, report)


def test_a_cancelled_job(served: Served, spark: SparkSession, buckets: Path) -> None:  # noqa: F811
    parquet(buckets / "data/in/cancel/a.parquet", many(20_000), 5000)
    report = ask(served, {"input": place("in/cancel", "parquet"), "output": place("out/cancel")})

    def cancel() -> None:
        wait_until(lambda: status(served, report)["completion_rate"] > 0, lambda: status(served, report))
        served.http.post(f"{PATH}/cancel", headers=JSON, params={"request_id": report["request_id"]})

    thread = threading.Thread(target=cancel)
    thread.start()
    ended, _ = on_spark(served, spark, report)
    thread.join()
    assert (ended["status"], ended["completion_rate"] < 1.0) == ("CANCELLED", True)
    assert Path("_SUCCESS") not in found(buckets, ended)
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


def test_python_workers_that_are_killed(served: Served, spark: SparkSession, buckets: Path) -> None:  # noqa: F811
    rows, chance = many(3000), random.Random(seed := random.randrange(1000))
    print("seed", seed)
    parquet(buckets / "data/in/killed/a.parquet", rows, 1000)
    report = ask(served, {"input": place("in/killed", "parquet"), "output": place("out/killed")})
    ended, killed = threading.Event(), list[int]()

    def kill() -> None:
        wait_until(lambda: status(served, report)["completion_rate"] > 0, lambda: status(served, report))
        while not ended.wait(chance.uniform(0.5, 1.5)) and len(killed) < 3:
            workers = python_workers()
            for each in workers[:1]:
                each.kill()
                killed.append(each.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    report, parts = on_spark(served, spark, report)
    ended.set()
    thread.join()
    assert report["status"] == "COMPLETED", report
    assert killed
    assert (len(parts.counts), report["failure_rate"]) == (1, 0.0)
    assert rows_of(buckets, report) == queried_at_once(served, rows)


def python_workers() -> list[psutil.Process]:
    """Return Spark's Python workers: children of its daemon."""
    jvms = [each for each in psutil.Process(os.getpid()).children() if each.name() == "java"]
    daemons = [each for jvm in jvms for each in jvm.children()]
    return [each for daemon in daemons for each in daemon.children()]


def test_a_worker_gives_back_what_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten = threading.Event()
    monkeypatch.setattr(on_cluster, "IDLE", 0.01)
    monkeypatch.setattr(on_cluster, "answers_of", SimpleNamespace(cache_clear=forgotten.set))
    monkeypatch.setattr(on_cluster, "answer_part", lambda *_: PartReport(0))
    monkeypatch.setattr(on_cluster, "opened", lambda *_: None)
    reports = list[Any]()
    on_cluster._task("", "", "", SimpleNamespace(add=reports.append))(InputPart(0, ()))
    assert reports == [(PartReport(0),)]
    assert forgotten.wait(300)


def test_the_reason_of_a_failed_task() -> None:
    text = (
        "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted\n"
        'Traceback (most recent call last):\n  File "x.py"\numbel.errors.Transient: S3 is away\n\tat java.lang.Thread'
    )
    assert reason_of(RuntimeError(text)) == "S3 is away"
    assert reason_of(RuntimeError(text.replace("Transient", "Other"))) == "Job aborted"
    assert reason_of(RuntimeError("the JVM is gone\nmore")) == "the JVM is gone"
