"""The cases on Spark, all of them in one query: as rows stream in, and computed from history by tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance.cases import CASES
from tests.conformance.multiplexed import begin, fits, in_rounds, logged, put_in_force
from tests.deployed import live, wait_until
from umbel.runtime.backfill_state import BackfillState
from umbel.runtime.deployment import JOB
from umbel.spark import backfill_step
from umbel.spark.job import SMALL

FITTING = [case for case in CASES if fits(case)]
Failures = Mapping[str, Exception | None]


@pytest.fixture(scope="module")
def streamed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Failures:
    """Return what became of the cases when their rows arrive while the job runs; batches this small stay in the driver."""
    deployed, playing = begin(tmp_path_factory.mktemp("streamed"), FITTING)
    put_in_force(deployed, playing)
    with live(deployed, spark, small=SMALL) as caught_up:
        in_rounds(playing, caught_up)
    deployed.close()
    return {one.case.name: one.failure for one in playing}


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def counted_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make backfills go by small steps, in tasks, in the driver and in threads; return the list that gets their numbers."""
    steps, run = list[int](), backfill_step.BackfillStep.run

    def counted(self: Any, state: BackfillState, sizes: Any, begun: float, *, is_live: bool) -> bool:
        assert not is_live
        steps.append(state.step)
        step = replace(self, is_threaded=state.step % 3 == 2)
        return run(step, state, sizes, begun, is_live=state.step % 3 == 1)

    monkeypatch.setattr(backfill_step.BackfillStep, "run", counted)
    for name, rows in (("backfill_step.ROWS_AT_ONCE", 30), ("backfill_step.LIVE_ROWS", 60)):
        monkeypatch.setattr(f"umbel.spark.{name}", rows)
    for name, rows in (("PART_ROWS", 7), ("SLICE_ROWS", 15)):
        monkeypatch.setattr(f"umbel.runtime.history_slices.{name}", rows)
    return steps


@pytest.fixture(scope="module")
def backfilled(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch_module: pytest.MonkeyPatch
) -> Failures:
    """Return what became of the cases when their pipelines are committed after all rows are there, and read in several steps."""
    deployed, playing = begin(tmp_path_factory.mktemp("backfilled"), FITTING, budget=1500)
    catalog = deployed.deployment.catalog
    for one in playing:
        one.forward()
    put_in_force(deployed, playing, sources_only=True)
    with live(deployed, spark, small=0) as caught_up:
        caught_up(logged(playing))
        steps = counted_steps(monkeypatch_module)
        put_in_force(deployed, playing)

        def is_there() -> bool:
            caught_up({})
            return catalog.serving(catalog.latest())["main"] == catalog.head("main")

        wait_until(is_there, lambda: catalog.progress(JOB, sys.maxsize))
    assert len(steps) > 2
    assert steps == list(range(len(steps)))
    for one in playing:
        one.check()
    deployed.close()
    return {one.case.name: one.failure for one in playing}


@pytest.mark.parametrize("engine", ["streamed", "backfilled"])
@pytest.mark.parametrize("case", FITTING, ids=lambda case: case.name)
def test_case(case: Any, engine: str, request: pytest.FixtureRequest) -> None:
    failure = request.getfixturevalue(engine)[case.name]
    if failure is not None:
        raise failure
