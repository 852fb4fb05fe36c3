"""Batches run in this process, and how far they are behind."""

from __future__ import annotations

import errno
import time
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pandas as pd
import polars as pl
import pytest

from tests.unit.serving.conftest import DEPARTURES
from tests.unit.serving.flights import DATASETS, Departure
from umbel.api.commit import check_commit
from umbel.connectors import Files, source
from umbel.datasets import Sum, dataset, field, pipeline
from umbel.definitions.records import DatasetDefinition
from umbel.dtypes import Continuous
from umbel.errors import Damaged, InvalidValue, NotSupported, Transient
from umbel.graph import threads
from umbel.graph.execution import InProcess
from umbel.lib import inputs
from umbel.log.ingest import IngestLog
from umbel.log.segments import PREAMBLE_BYTES, directory_of, segments_in
from umbel.log.tail import Tail
from umbel.query.lookups import Lookups
from umbel.runtime.batch import drain
from umbel.runtime.changelogs import ChangeLogs
from umbel.runtime.commit import commit
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.freshness import Lag, behind, lags
from umbel.state import disk

__owner__ = "tests@umbel.dev"


@pytest.fixture
def place(tmp_path: Path) -> Deployment:
    deployment = Deployment.at(tmp_path, shards=2)
    commit(deployment, check_commit(DATASETS, []))
    return deployment


def send(place: Deployment, rows: list[dict[str, object]], seconds_ago: float = 0.0) -> None:
    log = IngestLog(place.directory, "events", "departures")
    received = int((time.time() - seconds_ago) * 1e6)
    log.append_blocking(orjson.dumps(rows), len(rows), received_at=received)
    log.close()


def test_what_is_there_is_processed_once(place: Deployment) -> None:
    assert drain(place) == 1  # the commit itself is worth a batch
    send(place, DEPARTURES)
    assert drain(place) == 1
    assert drain(place) == 0
    send(place, DEPARTURES)
    assert drain(place) == 1
    assert place.catalog.counts() == {("Departure", "rows"): 6}


def test_no_more_batches_are_processed_than_requested(place: Deployment) -> None:
    send(place, DEPARTURES)
    assert drain(place, batches=0) == 0
    assert drain(place, batches=1) == 1


def test_a_batch_that_is_lost_behind_a_later_one_is_missed(place: Deployment) -> None:
    for _ in range(2):
        send(place, DEPARTURES)
        drain(place)
    node = place.graph(place.catalog.revision()).outputs["Departure"]
    place.changes.check(node)
    first, _ = sorted((place.directory / "changes" / node.log / "_tail").glob("*.arrow"))
    first.unlink()
    with pytest.raises(Damaged, match=r"batch \d+ is missing in its tail"):
        place.changes.check(node)


def test_behind_is_the_age_of_the_oldest_event_not_processed(place: Deployment) -> None:
    assert behind(place) == 0.0
    send(place, DEPARTURES, seconds_ago=100)
    send(place, DEPARTURES, seconds_ago=50)
    assert 100 <= behind(place) < 110
    drain(place)
    assert behind(place) == 0.0
    send(place, DEPARTURES, seconds_ago=30)
    assert 30 <= behind(place) < 40


def test_the_lag_counts_the_bytes_of_all_segments(place: Deployment) -> None:
    log = IngestLog(place.directory, "events", "departures", segment_bytes=100)
    for _ in range(4):
        log.append_blocking(orjson.dumps(DEPARTURES), len(DEPARTURES))
    log.close()
    sizes = [each.path.stat().st_size for each in segments_in(directory_of(place.directory, "events", "departures"))]
    lag = Lag.total(lags(place).values())
    assert len(sizes) == 4
    assert (lag.rows, lag.bytes) == (4 * len(DEPARTURES), sum(sizes) - PREAMBLE_BYTES)


@pytest.mark.parametrize("segment_bytes", [1 << 10, 64 << 20])
def test_the_lag_is_the_same_where_nobody_has_noted_the_end_of_the_log(
    place: Deployment, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    endpoint, log = (
        ("events", "departures"),
        IngestLog(place.directory, "events", "departures", segment_bytes=segment_bytes),
    )
    row = {"origin": "JFK" * 3000, "delay": 1, "at": "2013-12-01T15:00:00Z"}
    received = int((time.time() - 500) * 1e6)
    for _ in range(300):
        log.append_blocking(orjson.dumps([row, row]), 2, received_at=received)
    before = lags(place)[endpoint]
    assert (before.rows, 5_400_000 < before.bytes < 5_500_000) == (600, True)
    assert 500 <= before.seconds < 560
    drain(place)
    assert lags(place)[endpoint] == Lag()
    log.append_blocking(orjson.dumps([row]), 1)
    log.close()
    after = lags(place)[endpoint]
    assert after.rows == 1
    monkeypatch.setattr(Tail, "hint", lambda _: None)  # after a restart of the machine
    again = lags(place)[endpoint]
    assert (again.rows, again.bytes) == (after.rows, after.bytes)
    assert Lag.total([before, after]).rows == 601


@pytest.mark.parametrize("is_noted", [True, False])
def test_the_lag_passes_over_damaged_and_missing_segments(
    place: Deployment, monkeypatch: pytest.MonkeyPatch, is_noted: bool
) -> None:
    endpoint = "events", "departures"
    log = IngestLog(place.directory, *endpoint, segment_bytes=1 << 10)
    for _ in range(8):
        log.append_blocking(
            orjson.dumps(DEPARTURES * 8), len(DEPARTURES) * 8, received_at=int((time.time() - 500) * 1e6)
        )
    log.close()
    whole = lags(place)[endpoint]
    segments = segments_in(directory_of(place.directory, *endpoint))
    assert len(segments) > 3
    data = bytearray(segments[0].path.read_bytes())
    data[PREAMBLE_BYTES : PREAMBLE_BYTES + 40] = bytes(40)
    segments[0].path.write_bytes(data)
    segments[1].path.unlink()
    if not is_noted:
        monkeypatch.setattr(Tail, "hint", lambda _: None)
    found = lags(place)[endpoint]
    assert (found.rows, found.bytes < whole.bytes, 500 <= found.seconds < 560) == (whole.rows, True, True)


def test_a_pipeline_that_needs_history_is_left_to_spark(tmp_path: Path) -> None:
    place = Deployment.at(tmp_path, shards=1)
    commit(place, check_commit([Departure], []))
    send(place, DEPARTURES)
    drain(place)
    definitions = check_commit(DATASETS, [])
    with pytest.raises(InvalidValue, match=r"\['DelayOfOrigin'\] would have to be computed from history"):
        commit(place, definitions, backfill=False)
    report = commit(place, definitions, preview=True)
    assert (report["revision"], report["recomputed"], report["new"]) == (
        None,
        ["DelayOfOrigin"],
        ["DelayOfOrigin", "Plane"],
    )
    assert commit(place, definitions)["revision"] == 2
    with pytest.raises(NotSupported, match="computed from history"):
        drain(place)


def test_a_commit_without_a_change_is_none(place: Deployment) -> None:
    report = commit(place, check_commit(DATASETS, []))
    assert (report["revision"], report["unchanged"]) == (1, ["DelayOfOrigin", "Departure", "Plane"])
    report = commit(place, check_commit([Departure], []))
    assert (report["revision"], report["removed"]) == (2, ["DelayOfOrigin", "Plane"])


def test_a_removed_pipeline_leaves_no_state_that_could_come_back(place: Deployment) -> None:
    send(place, DEPARTURES)
    drain(place)
    before = place.graph(place.catalog.revision())
    owner = before.outputs["DelayOfOrigin"].state_id
    assert any(owner in place.store.state_ids(shard) for shard in range(place.shards))
    commit(place, check_commit([Departure], []))
    assert drain(place) == 1
    assert not any(owner in place.store.state_ids(shard) for shard in range(place.shards))
    assert owner not in place.catalog.backfilled()
    assert before.outputs["Plane"].state_id in place.catalog.backfilled()
    assert place.changes.read(before.outputs["Departure"]).height == len(DEPARTURES)
    commit(place, check_commit(DATASETS, []))
    with pytest.raises(NotSupported, match="history"):
        drain(place)


@pytest.mark.parametrize("step", ["keep", "flush", "commit", "dues"])
def test_a_batch_is_finished_when_its_changes_are_in_the_logs_and_not_before(
    place: Deployment, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    drain(place)
    send(place, DEPARTURES)
    before = place.catalog.progress(JOB, 10**9)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ChangeLogs, step, dies)
        with pytest.raises(KeyboardInterrupt):
            drain(place)
    assert place.catalog.progress(JOB, 10**9) == before
    assert drain(place) == 1
    node = place.graph(place.catalog.revision()).outputs["Departure"]
    assert place.changes.read(node).height == len(DEPARTURES)
    assert place.catalog.counts() == {("Departure", "rows"): len(DEPARTURES)}


LINES, BAD = 2000, 250


def divided(df: pd.DataFrame) -> pd.Series[int]:
    return df["n"].map(lambda n: 100 // (n % BAD) * 0 + n).astype("Int64")


def filed(folder: Path, files: int) -> list[DatasetDefinition]:
    """Write files of rows, and return datasets of which one computes and refuses some of them."""
    for number in range(files):
        rows = ({"n": number * LINES + n, "at": n} for n in range(LINES))
        folder.joinpath(f"{number}.json").write_bytes(b"\n".join(map(orjson.dumps, rows)))

    @source(Files(name="f", folder=str(folder)).path("*.json"), disorder="1d", cdc="append")
    @dataset
    class Line:
        n: int
        at: datetime

    @dataset(index=True)
    class Sums:
        of: int = field(key=True)
        total: int
        at: datetime

        @pipeline
        @inputs(Line)
        def sums(cls, lines):  # type: ignore[no-untyped-def]
            computed = lines.assign("total", int, divided).filter(lambda df: df["n"].map(lambda n: n != 7))
            keyed = computed.assign("of", int, lambda df: df["n"] % 13).drop("n")
            return keyed.groupby("of").aggregate(total=Sum(of="total", window=Continuous("forever")))

    @dataset
    class Unique:
        n: int
        at: datetime

        @pipeline
        @inputs(Line)
        def once(cls, lines):  # type: ignore[no-untyped-def]
            return lines.dedup(by=["n"])

    return check_commit([Line, Sums, Unique], [])


@pytest.mark.parametrize("cores", [1, 4])
def test_files_and_shards_in_threads_give_what_one_thread_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    """Functions fail for some rows of each file, in several threads at once: each is counted and named once."""
    monkeypatch.setattr(threads._SETTINGS, "threads", cores)
    data = tmp_path / "data"
    data.mkdir()
    deployment = Deployment.at(tmp_path / "umbel", shards=4)
    commit(deployment, filed(data, 6))
    drain(deployment)
    good = [n for n in range(6 * LINES) if n % BAD and n != 7]
    graph = deployment.graph(deployment.catalog.revision())
    found, _ = Lookups(graph, deployment.store, lambda _, __: pl.DataFrame()).online(
        "Sums", pl.DataFrame({"of": range(13)}), pl.Series([datetime(2030, 1, 1, tzinfo=UTC)] * 13)
    )
    assert found["total"].to_list() == [sum(n for n in good if n % 13 == of) for of in range(13)]
    counts = deployment.catalog.counts()
    assert (counts["Line", "rows"], counts["Sums", "dead"]) == (6 * LINES, 6 * LINES // BAD)
    letters = deployment.catalog.dead_letters("Sums", 1000)
    places = {f"{orjson.loads(each.raw)['n'] // LINES}.json" for each in letters}
    assert len(letters) == 6 * LINES // BAD
    assert places == {f"{number}.json" for number in range(6)}
    for each in letters:
        assert f"{orjson.loads(each.raw)['n'] // LINES}.json" in each.position


@pytest.mark.parametrize("tailed", [1, 1 << 30])
def test_a_batch_that_is_run_again_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tailed: int) -> None:
    """It ends between its change logs, in tables or in tails, and its progress."""
    monkeypatch.setattr("umbel.runtime.batch.TAILED", tailed)
    data = tmp_path / "data"
    data.mkdir()
    deployment = Deployment.at(tmp_path / "umbel", shards=2)
    commit(deployment, filed(data, 2))
    with monkeypatch.context() as patch:
        patch.setattr(type(deployment.catalog), "finish", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            drain(deployment)
    assert drain(deployment) == 2  # the second fires what is due
    node = deployment.graph(deployment.catalog.revision()).outputs["Line"]
    assert deployment.changes.read(node)["n"].sort().to_list() == list(range(2 * LINES))
    deployment.changes.check(node, deep=True)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("victim", ["stages", "log"])
def test_rows_are_logged_once_if_a_batch_ends_while_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, victim: str
) -> None:
    """The rows that were read are written beside the stages, those that a stage made after them."""
    monkeypatch.setattr(threads._SETTINGS, "threads", cores)
    monkeypatch.setattr("umbel.runtime.batch.TAILED", 1)
    data = tmp_path / "data"
    data.mkdir()
    deployment = Deployment.at(tmp_path / "umbel", shards=3)
    commit(deployment, filed(data, 2))

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*((InProcess, "run", dies) if victim == "stages" else (ChangeLogs, "write_part", dies)))
        with pytest.raises(KeyboardInterrupt):
            drain(deployment)
    assert drain(deployment) == 2  # the second fires what is due
    graph = deployment.graph(deployment.catalog.revision())
    for name in ("Line", "Unique"):
        node = graph.outputs[name]
        assert deployment.changes.read(node)["n"].sort().to_list() == list(range(2 * LINES)), name
        deployment.changes.check(node, deep=True)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("victim", ["Line", "Unique"])
def test_a_batch_that_fails_on_a_full_disk_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, victim: str
) -> None:
    """Each attempt left those of the logs that were written, until a week had passed: the disk stayed full."""
    monkeypatch.setattr(threads._SETTINGS, "threads", cores)
    monkeypatch.setattr("umbel.runtime.batch.TAILED", 1)
    data, written = tmp_path / "data", disk._written
    data.mkdir()
    deployment = Deployment.at(tmp_path / "umbel", shards=3)
    commit(deployment, filed(data, 2))

    def write(path: Path, content: bytes | memoryview) -> None:
        if victim not in str(path):
            return written(path, content)
        written(path, content[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "_written", write)
        for _ in range(2):
            with pytest.raises(Transient, match="cannot be written: No space left"):
                drain(deployment)
    assert list((tmp_path / "umbel" / "changes").rglob("*.parquet")) == []
    assert drain(deployment) == 2  # the second fires what is due
    graph = deployment.graph(deployment.catalog.revision())
    for name in ("Line", "Unique"):
        node = graph.outputs[name]
        assert deployment.changes.read(node)["n"].sort().to_list() == list(range(2 * LINES)), name
