from __future__ import annotations

import pytest

from umbel.state.port import Fenced, StaleBatch, Stamp
from umbel.state.progress import StampProgress, next_progress

AT = StampProgress(Stamp(3, 7, 2))


@pytest.mark.parametrize("stamp", [Stamp(3, 7), Stamp(3, 7, 9), Stamp(3, 8), Stamp(4, 7, 2), Stamp(9, 99)])
def test_later_writes_and_runs_again_are_admitted(stamp: Stamp) -> None:
    AT.admit("op", stamp)


@pytest.mark.parametrize("stamp", [Stamp(2, 7, 2), Stamp(2, 99), Stamp(0, 0)])
def test_lower_epochs_are_fenced_off(stamp: Stamp) -> None:
    with pytest.raises(Fenced, match=f"operator op belongs to epoch 3, not to epoch {stamp.epoch}"):
        AT.admit("op", stamp)


@pytest.mark.parametrize("stamp", [Stamp(3, 6, 9), Stamp(4, 0)])
def test_earlier_batches_are_stale(stamp: Stamp) -> None:
    with pytest.raises(StaleBatch, match=f"operator op is at batch 7; batch {stamp.batch} came before"):
        AT.admit("op", stamp)


def test_steps_from_the_one_given_on_are_run_again() -> None:
    assert [AT.repeats(Stamp(3, 7, step)) for step in range(5)] == [True, True, True, False, False]
    assert not AT.repeats(Stamp(3, 8, 0))
    assert AT.repeats(Stamp(4, 7, 1))


def test_a_step_without_undo_stops_what_would_take_it_back() -> None:
    filled = next_progress(None, Stamp(1, 1, 0), undo=False)
    ticked = next_progress(filled, Stamp(1, 1, 1), undo=True)
    ticked.admit("op", Stamp(1, 1, 1))
    with pytest.raises(StaleBatch, match="without undo"):
        ticked.admit("op", Stamp(1, 1, 0))
    moved = next_progress(ticked, Stamp(1, 2, 0), undo=True)
    moved.admit("op", Stamp(1, 2, 0))
    assert moved.solid == -1
