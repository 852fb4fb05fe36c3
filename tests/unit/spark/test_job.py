"""What happens in a batch of the live job must reach Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from polars.exceptions import PanicException

from umbel.runtime.retries import EXCUSED
from umbel.spark.job import LiveJob


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (PanicException("out of bounds"), "PanicException: out of bounds"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (OSError("disk full"), "disk full"),
        (MemoryError("too much"), "too much"),
    ],
)
def test_a_batch_ends_with_an_exception_that_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, reported: str
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(LiveJob, "_run_batch", fails)
    job: Any = object.__new__(LiveJob)
    noted = list[tuple[object, ...]]()
    job._deployment = SimpleNamespace(catalog=SimpleNamespace(note=lambda *setting: noted.append(setting)))
    job._epoch, job._planned = 7, lambda number: number
    with pytest.raises(Exception, match=reported):  # py4j passes on no BaseException, and Spark waits for ever
        job._batch(None, 1)
    assert noted == ([] if isinstance(error, MemoryError) else [(EXCUSED, 7)])


@pytest.mark.parametrize(
    ("size", "opens_at_once", "threaded", "expected"),
    [
        (10, False, 10, True),  # small
        (11, True, 10, False),  # many cores, or a cluster
        (11, True, 100, True),  # few cores
        (11, False, 100, False),  # a source that is read one split at a time
        (101, True, 100, False),
    ],
)
def test_the_driver_runs_small_batches_and_on_two_cores_those_it_reads_in_threads(
    size: int, opens_at_once: bool, threaded: int, expected: bool
) -> None:
    job: Any = object.__new__(LiveJob)
    job._small, job._threaded = 10, threaded
    batch = SimpleNamespace(plan=SimpleNamespace(size=size), opens_at_once=opens_at_once)
    assert job._is_for_driver(batch) is expected
