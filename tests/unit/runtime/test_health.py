"""The worker's health: the report on one that is fine, slow, stopped, looping or stuck."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from umbel.processes.status import (
    RUNNING,
    STARTING,
    STOPPED,
    Failure,
    Failures,
    Heartbeat,
    Status,
    forget_status,
    note_failure,
    note_last_end,
    progressed,
    read_failures,
    read_status,
    seconds_since_boot,
)
from umbel.runtime.deployment import Deployment
from umbel.runtime.freshness import Lag
from umbel.runtime.health import LOOPING, NEVER, SILENT, STUCK, health, judge
from umbel.runtime.limits import Limits

NOW = time.time()
LIMITS, LATE = Limits(stuck_after=600), Lag(1, 1, 601)
FINE = Status(RUNNING, os.getpid(), NOW, 7, NOW, NOW + 1, NOW, host=platform.node())
ELSEWHERE = replace(FINE, host="another", process=1)


def failed(*ago: float, ran_for: float = 5) -> Failures:
    return Failures(len(ago), tuple(Failure(NOW - each, ran_for, "exit code 1") for each in ago))


@pytest.mark.parametrize(
    ("status", "failures", "lag", "state"),
    [
        (FINE, Failures(), Lag(), RUNNING),
        (None, Failures(), Lag(), NEVER),
        (None, failed(1), Lag(), STOPPED),
        (replace(FINE, state=STOPPED), Failures(), Lag(), STOPPED),
        (replace(FINE, state="failed", reason="broken"), failed(1), Lag(), STOPPED),
        (replace(FINE, state=STARTING), Failures(), Lag(), STARTING),
        (replace(FINE, state=STARTING, progress_at=NOW - 601), Failures(), Lag(), STUCK),
        # idle for a day
        (replace(FINE, progress_at=NOW - 86400), Failures(), Lag(), RUNNING),
        (replace(FINE, progress_at=NOW - 86400), Failures(), Lag(5, 5, 599), RUNNING),
        (replace(FINE, progress_at=NOW - 86400), Failures(), LATE, STUCK),
        # a batch that takes an hour: of which parts are done, and of which none is
        (replace(FINE, doing="batch 8", batch_at=NOW - 3600, progress_at=NOW - 500), Failures(), LATE, RUNNING),
        (replace(FINE, doing="batch 8", progress_at=NOW - 601), Failures(), Lag(), STUCK),
        # no sign of life
        (replace(ELSEWHERE, at=NOW - SILENT - 1), Failures(), Lag(), STUCK),
        (replace(ELSEWHERE, at=NOW - SILENT + 1), Failures(), Lag(), RUNNING),
        (replace(FINE, begun_at=1.0), Failures(), Lag(), STOPPED),  # another process has its number now
        # crash loops
        (replace(FINE, state=STARTING), failed(90, 60, 30), Lag(), LOOPING),
        (replace(FINE, begun_at=NOW - 29), failed(90, 60, 30), Lag(), LOOPING),
        (None, failed(90, 60, 30), Lag(), LOOPING),
        (replace(ELSEWHERE, begun_at=NOW - 61), failed(120, 90, 62), Lag(), RUNNING),
        (replace(ELSEWHERE, begun_at=NOW - 61), failed(400, 250, 62, ran_for=100), Lag(), LOOPING),
        (replace(FINE, state=STARTING), failed(3000, 2000, 10), Lag(), STARTING),
        # the clock was set forward after the start of the worker, and back after it had ended three times
        (replace(FINE, begun_at=1.0, since_boot=seconds_since_boot(psutil.Process())), Failures(), Lag(), RUNNING),
        (replace(FINE, begun_at=1.0, since_boot=1e9), Failures(), Lag(), STOPPED),
        (FINE, failed(-3600, -3630, -3660), Lag(), RUNNING),
    ],
)  # fmt: skip
def test_the_reported_health(status: Status | None, failures: Failures, lag: Lag, state: str) -> None:
    found, reason = judge(status, failures, lag, LIMITS, NOW)
    assert found == state, reason
    assert bool(reason) == (state in {STUCK, LOOPING} or (state == STOPPED and status != replace(FINE, state=STOPPED)))


def test_a_worker_notes_when_its_process_began(tmp_path: Path) -> None:
    with Heartbeat(tmp_path):
        found = read_status(tmp_path)
    assert found is not None
    assert found.since_boot == pytest.approx(seconds_since_boot(psutil.Process()), abs=0.5)


def test_a_worker_that_was_killed_is_stopped_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    state, reason = judge(replace(FINE, process=ended.pid), Failures(), Lag(), LIMITS, NOW)
    assert (state, f"process {ended.pid}" in reason) == (STOPPED, True)


def test_a_stopped_worker_on_a_full_disk_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A status could not be written: the last one was that of a process that is gone, which was called killed."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    place = Deployment.at(tmp_path)
    (tmp_path / "work.json").write_text(json.dumps(asdict(replace(FINE, process=ended.pid, host=platform.node()))))
    assert "full" not in health(place, LIMITS).reason
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    assert health(place, LIMITS).reason.endswith(f"; the disk of {tmp_path} is full: free some space")
    place.catalog.close()
    place.store.close()


def test_a_heartbeat_goes_on_while_the_worker_is_busy(tmp_path: Path) -> None:
    def seen() -> Status:
        found = read_status(tmp_path)
        assert found is not None
        return found

    def later(condition: str) -> Status:
        deadline = time.monotonic() + 30
        while not eval(condition, {"s": seen()}):
            assert time.monotonic() < deadline, condition
            time.sleep(0.02)
        return seen()

    with Heartbeat(tmp_path) as beat:
        assert (seen().state, seen().process) == (STARTING, os.getpid())
        beat.running()
        first = seen()
        assert first.is_running
        beat.began(3)
        busy = later("s.doing == 'batch 3'")
        assert busy.at > first.at
        progressed()
        assert later(f"s.progress_at > {busy.progress_at}").doing == "batch 3"
        beat.finished(3)
        assert later("not s.doing").batch == 3
    assert seen().state == STOPPED
    progressed()  # nobody listens any more


def test_how_it_ended(tmp_path: Path) -> None:
    def end(error: BaseException) -> Status:
        with pytest.raises(type(error)), Heartbeat(tmp_path):
            raise error
        found = read_status(tmp_path)
        assert found is not None
        return found

    assert end(SystemExit(0)).state == STOPPED
    assert (end(ValueError("broken")).state, end(ValueError("broken")).reason) == ("failed", "ValueError: broken")
    note_last_end(tmp_path)  # what the next worker does where there is no supervisor
    assert (read_failures(tmp_path).count, read_failures(tmp_path).last[0].reason) == (1, "ValueError: broken")
    for number in range(20):
        note_failure(tmp_path, f"exit code {number}", 1.0)
    assert (read_failures(tmp_path).count, len(read_failures(tmp_path).last)) == (21, 10)
    end(SystemExit(0))
    note_last_end(tmp_path)
    assert read_failures(tmp_path) == Failures()
    note_failure(tmp_path, "killed", 1.0)
    forget_status(tmp_path)
    assert (read_status(tmp_path), read_failures(tmp_path)) == (None, Failures())


def test_files_that_are_broken_are_none(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"count": 1}', '{"state": 1, "unknown": 2}'):
        for name in ("work.json", "work-failures.json"):
            (tmp_path / name).write_text(text)
        assert (read_status(tmp_path), read_failures(tmp_path)) == (None, Failures())
