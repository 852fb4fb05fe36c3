"""The order in which offline queries are run."""

from types import SimpleNamespace
from typing import Any

import pytest

from umbel.offline import driver
from umbel.offline.driver import EVERY, PAUSE, OfflineDriver


class Jobs:
    """Open jobs by name, with their attempts; one without success stays open."""

    def __init__(self) -> None:
        self.attempts = {"fails": 3}

    def next_open(self) -> Any:
        found = min(self.attempts.items(), key=lambda each: each[1], default=None)
        return None if found is None else SimpleNamespace(id=found[0], attempts=found[1])


class Stop:
    """Time that passes when somebody waits; meanwhile a new job is submitted, once."""

    def __init__(self, jobs: Jobs) -> None:
        self.now, self._jobs, self._new = 1000.0, jobs, ["new"]

    def monotonic(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        self._jobs.attempts |= dict.fromkeys(self._new, 0)
        self._new.clear()
        return False


def test_a_new_job_does_not_wait_for_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After three attempts that would take 8 s, and 16 after four."""
    jobs, runs = Jobs(), list[tuple[str, float]]()
    stop: Any = Stop(jobs)
    monkeypatch.setattr(driver, "OfflineJobs", lambda _: jobs)
    monkeypatch.setattr(driver, "time", stop)
    runner = OfflineDriver(SimpleNamespace(catalog=None), lambda *_: None, stop)  # type: ignore[arg-type]

    def run(job: Any) -> None:
        runs.append((job.id, stop.now - 1000.0))
        del jobs.attempts[job.id]

    monkeypatch.setattr(runner, "run", run)
    runner.run_open()
    assert runs == [("new", EVERY), ("fails", EVERY + PAUSE * 4)]
