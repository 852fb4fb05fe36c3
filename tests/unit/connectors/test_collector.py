"""The folder of a collector as a source: each event once, and nothing deleted that a dataset has not read."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed
from umbel.api.commit import check_commit
from umbel.collector.backlog import CollectorBacklog, waiting_in
from umbel.collector.streams import Streams
from umbel.collector.totals import Totals
from umbel.connectors import Collector, source
from umbel.connectors import collector as module
from umbel.datasets import dataset
from umbel.errors import InvalidValue, UmbelError
from umbel.log.collected import SYSTEM, log_of
from umbel.log.ingest import IngestLog
from umbel.log.readers import forget, positions
from umbel.log.segments import ORIGIN, segments_in
from umbel.runtime.batch import drain
from umbel.runtime.limits import Limits
from umbel.transform import loads

__owner__ = "tests@example.com"
HOUR = 3_600_000_000


def clicks(folder: Path, **options: Any) -> Any:
    @source(Collector(name="edge", folder=str(folder)).stream("clicks"), disorder="1d", cdc="append", **options)
    @dataset
    class Click:
        n: int
        at: datetime

    return Click


def post(folder: Path, *numbers: Any) -> None:
    log = IngestLog(folder, SYSTEM, "clicks", segment_bytes=2000)
    for each in numbers:
        log.append_blocking(json.dumps([{"n": each, "at": "2026-03-01T00:00:00Z"}]).encode(), 1)
    log.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "NOTE_EVERY", 0.0)
    post(tmp_path / "events", 1, "x", 2)
    return tmp_path / "events"


def test_events_are_read_once_and_wrong_ones_are_dead_letters(tmp_path: Path, folder: Path) -> None:
    deployed = Deployed(tmp_path / "umbel", budget=200)
    deployed.commit([clicks(folder)])
    drain(deployed.deployment)
    post(folder, *range(3, 50))
    drain(deployed.deployment)
    drain(deployed.deployment)
    assert deployed.changes("Click")["n"].sort().to_list() == list(range(1, 50))
    (letter,) = deployed.deployment.catalog.dead_letters("Click", 10)
    assert letter.position.startswith("collect/clicks: segment 1")
    deployed.close()
    again = Deployed(tmp_path / "umbel")
    drain(again.deployment)
    assert again.changes("Click").height == 49
    again.close()


def test_events_pass_a_transformation(tmp_path: Path, folder: Path) -> None:
    config = loads(
        "source_field: n\ntarget_field: n\ntransformations: [{name: default, value: 0}]\n"
        "---\nsource_field: at\ntarget_field: at\n"
    )
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit([clicks(folder, transform=config)])
    drain(deployed.deployment)
    assert deployed.changes("Click")["n"].to_list() == [1, 2]
    deployed.close()


def test_the_collector_deletes_only_what_every_dataset_has_read(tmp_path: Path, folder: Path) -> None:
    deployed, log = Deployed(tmp_path / "umbel"), log_of(folder, "clicks")
    deployed.commit([clicks(folder)])
    drain(deployed.deployment)
    post(folder, *range(200))
    for each in segments_in(log):
        os.utime(each.path, (1, 1))

    def expire() -> int:
        streams = Streams(folder, ())
        CollectorBacklog(folder, streams, Limits(), Totals(), HOUR).look()
        streams.close()
        return len(segments_in(log))

    before = len(segments_in(log))
    assert before > 5
    assert waiting_in(log).rows >= 200
    assert expire() == before
    drain(deployed.deployment)
    drain(deployed.deployment)
    drain(deployed.deployment)
    assert waiting_in(log).rows == 0
    assert expire() == 1
    post(folder, 777)
    drain(deployed.deployment)
    assert 777 in deployed.changes("Click")["n"].to_list()
    deployed.close()


def test_the_note_of_a_reader_is_behind_what_may_be_read_again(tmp_path: Path, folder: Path) -> None:
    connector, log = Collector(name="edge", folder=str(folder)).stream("clicks"), log_of(folder, "clicks")
    planned: list[Any] = [None]

    def noted() -> int:
        ((_, found),) = positions(log).items()
        return found.position.row

    reader = module.StreamSource(connector, tmp_path, "key")
    for expected in (0, 0, 3, 4, 5):
        planned.append(reader.plan(planned[-1], 1)[1])
        assert noted() == expected
        post(folder, 7)
    again = module.StreamSource(connector, tmp_path, "key")  # of a new process, which runs the last batch again
    again.plan(planned[-1], 1)
    assert noted() == 5
    again.plan(planned[-1], 1)
    assert noted() == 7


def test_datasets_and_deployments_are_readers_of_their_own(tmp_path: Path, folder: Path) -> None:
    for name in ("one", "two"):
        deployed = Deployed(tmp_path / name)
        deployed.commit([clicks(folder)])
        drain(deployed.deployment)
        deployed.close()
    known = positions(log_of(folder, "clicks"))
    assert len(known) == 2
    for reader in known:
        forget(log_of(folder, "clicks"), reader)
    assert positions(log_of(folder, "clicks")) == {}
    with pytest.raises(InvalidValue, match="there is no reader"):
        forget(log_of(folder, "clicks"), "../../x")


def test_a_stream_without_events_is_empty(tmp_path: Path, folder: Path) -> None:
    other = Collector(name="edge", folder=str(folder)).stream("later")

    @source(other, disorder="1d", cdc="append")
    @dataset
    class Later:
        n: int
        at: datetime

    deployed = Deployed(tmp_path / "umbel")
    deployed.commit([Later])
    drain(deployed.deployment)
    assert deployed.taken() == {}
    assert not log_of(folder, "later").exists()
    deployed.close()


def test_a_folder_that_is_not_a_collectors_is_refused(tmp_path: Path) -> None:
    found = clicks(tmp_path / "nowhere")
    check_commit([found], ())
    deployed = Deployed(tmp_path / "umbel")
    with pytest.raises(UmbelError, match="not the folder of a collector"):
        module.StreamSource(
            Collector(name="edge", folder=str(tmp_path / "nowhere")).stream("clicks"), tmp_path, "key"
        ).examine()
    deployed.close()
    with pytest.raises(InvalidValue, match="name of a stream"):
        Collector(name="edge", folder="x").stream("../x")


def test_a_damaged_note_of_a_reader_is_the_beginning(folder: Path) -> None:
    log = log_of(folder, "clicks")
    (log / "readers").mkdir()
    for name, text in (("a", ""), ("b", "{}"), ("c", "[1]"), ("d", '{"position": {"segment": 1}}')):
        (log / "readers" / f"{name}.json").write_text(text)
    assert {name: each.position for name, each in positions(log).items()} == dict.fromkeys("abcd", ORIGIN)
    assert waiting_in(log).rows == 3
