"""Steps of a backfill are small, and half of the time at most, while rows arrive that are to be fresh."""

from __future__ import annotations

import pytest

from umbel.spark.pace import AT_ONCE_FOR, LIVE_FOR, Pace

SMALL = 1_000


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


@pytest.fixture
def pace(clock: list[float]) -> Pace:
    return Pace(SMALL, lambda: clock[0])


def test_without_rows_steps_are_large_and_follow_each_other(pace: Pace) -> None:
    pace.before(0)
    pace.stepped(3.0)
    pace.before(0)
    assert not pace.is_live
    assert pace.may_step


def test_small_batches_with_rows_are_live_for_a_while(pace: Pace, clock: list[float]) -> None:
    pace.before(SMALL)
    assert pace.is_live
    clock[0] += LIVE_FOR - 0.1
    pace.before(0)
    assert pace.is_live
    clock[0] += 0.1
    pace.before(0)
    assert not pace.is_live


def test_a_batch_that_catches_up_is_not_live(pace: Pace) -> None:
    pace.before(1)
    pace.before(SMALL + 1)
    assert not pace.is_live
    pace.before(0)
    assert pace.is_live


def test_live_batches_get_half_of_the_time(pace: Pace, clock: list[float]) -> None:
    pace.before(1)
    assert pace.may_step
    clock[0] += 0.4
    pace.stepped(0.4)
    pace.before(1)
    assert not pace.may_step
    clock[0] += 0.4
    assert pace.may_step


def test_a_large_step_delays_the_next_one_only_if_rows_arrive(pace: Pace, clock: list[float]) -> None:
    pace.stepped(2.0)
    pace.before(0)
    assert pace.may_step
    pace.before(1)
    assert not pace.may_step
    clock[0] += 2.0
    assert pace.may_step


def test_steps_follow_each_other_before_a_batch_without_rows(pace: Pace, clock: list[float]) -> None:
    pace.before(0)
    assert pace.may_go_on
    clock[0] += AT_ONCE_FOR - 0.1
    assert pace.may_go_on
    clock[0] += 0.1
    assert not pace.may_go_on, "a commit and rows wait for a batch"


@pytest.mark.parametrize("size", [1, SMALL, SMALL + 1])
def test_a_batch_with_rows_waits_for_one_step(pace: Pace, size: int) -> None:
    pace.before(0)
    pace.before(size)
    assert not pace.may_go_on


def test_only_one_step_runs_before_each_batch_while_rows_are_to_be_fresh(pace: Pace, clock: list[float]) -> None:
    pace.before(1)
    pace.before(0)
    assert not pace.may_go_on
    clock[0] += LIVE_FOR
    pace.before(0)
    assert pace.may_go_on
