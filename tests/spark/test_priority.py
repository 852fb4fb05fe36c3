"""Python workers whose tasks let everything else on their machine go first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from umbel.spark.priority import NICENESS, VARIABLE, mapped, take_priority


def described(arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the niceness and the number of the process of a task as a packet."""
    from umbel.spark.priority import take_priority

    for _ in arrived:
        take_priority()
        take_priority()  # once per process
        numbers = (os.getpriority(os.PRIO_PROCESS, 0), os.getpid(), 0)
        arrays = [*(pa.array([number], pa.int32()) for number in numbers), pa.array([b""])]
        yield pa.RecordBatch.from_arrays(arrays, ["node", "input", "shard", "blob"])


def tasks(spark: Any, *, yields: bool) -> list[tuple[int, int]]:
    rows = mapped(spark.range(0, 4, numPartitions=4), described, yields=yields).collect()
    return [(row.node, row.input) for row in rows]


def test_tasks_that_yield_have_workers_of_their_own(spark: Any) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    before, low, after, again = (tasks(spark, yields=yields) for yields in (False, True, False, True))
    lowest = min(own + NICENESS, 19)
    assert {niceness for niceness, _ in before + after} == {own}
    assert {niceness for niceness, _ in low + again} == {lowest}
    assert not {worker for _, worker in low + again} & {worker for _, worker in before + after}


def test_the_environment_of_other_jobs_stays(spark: Any) -> None:
    environment = dict(spark.sparkContext.environment)
    mapped(spark.range(1), described, yields=True)
    assert spark.sparkContext.environment == environment
    with pytest.raises(TypeError, match="unsupported callable"):
        mapped(spark.range(1), 3, yields=True)  # type: ignore[arg-type]
    assert spark.sparkContext.environment == environment


def test_a_process_without_the_variable_keeps_its_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    take_priority.__wrapped__()
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
