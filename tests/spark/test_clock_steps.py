"""A live job whose clock is set back: Spark would begin no batch until it has caught up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.deployed import Deployed
from tests.sales import base
from umbel.cli import work
from umbel.processes import clock


class Stop:
    """A stop that nobody requests."""

    has_begun = False
    looks = 0

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> None:
        self.looks += 1
        assert self.looks < 100


def test_a_job_begins_anew_when_the_clock_was_set_back(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter([True])
    monkeypatch.setattr(clock, "ClockWatch", lambda: SimpleNamespace(was_set_back=lambda: next(steps, False)))
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit(base(tmp_path / "files"))
    beat: Any = SimpleNamespace(began=lambda _: None, finished=lambda _: None, running=lambda: None)
    stop: Any = Stop()
    assert work._run_job(deployed.deployment, spark, stop, beat) == ""
    assert stop.looks == 1
    assert not spark.streams.active  # the caller begins another one
    deployed.close()
