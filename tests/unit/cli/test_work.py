"""The worker over a folder that lacks what it has read: it ends with a message, at once and for good."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy.exc import OperationalError

from tests.unit.serving.conftest import DEPARTURES
from tests.unit.serving.flights import DATASETS
from umbel.api.commit import check_commit
from umbel.catalog.catalog import Catalog
from umbel.cli.work import _damage_in, _run_alone
from umbel.errors import Damaged
from umbel.log.ingest import IngestLog
from umbel.processes.status import read_status
from umbel.processes.supervision import FINAL
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment


def test_a_log_that_is_gone_ends_the_worker_for_good(tmp_path: Path) -> None:
    place = Deployment.at(tmp_path, shards=2)
    commit(place, check_commit(DATASETS, []))
    log = IngestLog(tmp_path, "events", "departures")
    log.append_blocking(orjson.dumps(DEPARTURES), len(DEPARTURES))
    log.close()
    drain(place)
    shutil.rmtree(tmp_path / "ingest")
    work = [sys.executable, "-m", "umbel.cli.main", "work", "--dir", str(tmp_path)]
    ended = subprocess.run(work, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == FINAL, ended.stderr
    assert "was read up to segment 1" in ended.stderr
    assert "hint: restore umbel's folder as a whole" in ended.stderr
    assert "Traceback" not in ended.stderr
    status = read_status(tmp_path)
    assert status is not None
    assert status.state == "failed"
    (event, *_) = place.catalog.events()
    assert event.text.startswith("the ingest log ingest/events/departures was read up to")


@pytest.mark.parametrize(
    "failure", [Damaged("the catalog is damaged: its events"), OperationalError("INSERT", {}, Exception("no answer"))]
)
def test_a_damaged_catalog_ends_the_worker_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """It could not note the event, and ended as if it might be started again."""

    def refuse(*_: object) -> None:
        raise Damaged("the catalog is damaged: its events")

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(Catalog, "check_decisive", refuse)
    monkeypatch.setattr(Catalog, "record_event", fail)
    with pytest.raises(SystemExit) as end:
        _run_alone(Deployment.at(tmp_path, shards=1), Any, Any)  # neither is used: no job begins
    assert end.value.code == FINAL
    status = read_status(tmp_path)
    assert status is not None
    assert "the catalog is damaged: its events" in status.reason


SIGNALLED = """
import os, signal, time
from umbel.cli.work import Stop

class Collected:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})

stop = Stop()
Collected()
time.sleep(60)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_comes_during_garbage_collection_stops_a_worker_that_starts(name: str) -> None:
    """An exception of the handler would be ignored there."""
    script = [sys.executable, "-c", SIGNALLED.format(name=name)]
    ended = subprocess.run(script, capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_damage_is_found_in_what_spark_tells() -> None:
    report = (
        "[STREAM_FAILED] Query terminated with exception: Python worker raised:\n"
        "Traceback (most recent call last):\n  File x, line 3, in latestOffset\n"
        "umbel.errors.Damaged: plan 7 is missing\n  hint: restore it\n\n\tat org.apache.spark.X"
    )
    assert _damage_in(report) == "plan 7 is missing\n  hint: restore it"
    assert _damage_in("an error of another kind") == ""
    assert _damage_in("umbel.errors.Damaged: plan 7 is missing\n  hint: restore it\n SQLSTATE: 38000") == (
        "plan 7 is missing\n  hint: restore it"
    )
