"""What every store must do when batches run again: stamps, undo, and state that comes out exactly once."""

from __future__ import annotations

import os

import pytest

from tests.contracts import store_scenario as scenario
from tests.contracts.store_entries import SHARDS, A, B, Entries, put, stored_entries
from umbel.state import failpoints
from umbel.state.port import Fenced, StaleBatch, Stamp, Store

# stamps and undo


def test_stamps_are_stored_for_each_state_id_and_shard(store: Store) -> None:
    put(store, Stamp(3, 7, 2), {b"a": b"1"})
    put(store, Stamp(2, 4), {b"a": b"1"}, state_id=B, shard=1)
    assert store.stamp(0, A) == Stamp(3, 7, 2)
    assert store.stamp(1, A) is None
    assert store.stamp(1, B) == Stamp(2, 4, 0)


def test_a_batch_that_runs_again_finds_the_state_before_it(store: Store) -> None:
    put(store, Stamp(1, 1), {b"kept": b"1", b"changed": b"1", b"removed": b"1"})
    before = stored_entries(store)
    put(store, Stamp(1, 2), {b"changed": b"2", b"removed": None, b"added": b"2"})
    with store.transaction(0, [A], Stamp(1, 2)) as tx:
        assert Entries(tx).all() == before
        Entries(tx).put([b"changed"], [b"3"])
    assert stored_entries(store) == {**before, b"changed": b"3"}


def test_undo_counts_from_the_first_write_of_a_step(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1"})
    for _ in range(2):
        with store.transaction(0, [A], Stamp(1, 2)) as tx:
            assert Entries(tx).all() == {b"a": b"1"}
            Entries(tx).put([b"a"], [b"2"])
            Entries(tx).put([b"a"], [b"3"])
            Entries(tx).delete([b"a"])
            Entries(tx).put([b"a", b"b"], [b"4", b"4"])
            Entries(tx).put([b"b", b"c"], [b"5", b"5"])
            Entries(tx).delete([b"b", b"x"])
            Entries(tx, name="u").put([b"a"], [b"6"])
        assert stored_entries(store) == {b"a": b"4", b"c": b"5"}


def test_a_failed_run_again_leaves_the_former_run(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1"})
    put(store, Stamp(1, 2), {b"a": b"2"})
    with pytest.raises(RuntimeError, match="stop"), store.transaction(0, [A], Stamp(1, 2)) as tx:  # noqa: PT012
        Entries(tx).put([b"b"], [b"9"])
        raise RuntimeError("stop")
    assert stored_entries(store) == {b"a": b"2"}
    with store.transaction(0, [A], Stamp(1, 2)) as tx:
        assert Entries(tx).all() == {b"a": b"1"}


def test_steps_of_a_batch_are_undone_newest_first(store: Store) -> None:
    states = [{b"a": b"-"}]
    put(store, Stamp(1, 1), {b"a": b"-"})
    for step in range(5):
        states.append({b"a": b"%d" % step, b"s%d" % (step % 2): b"%d" % step, **_others(states[-1], step)})
        put(store, Stamp(1, 2, step), {b"a": b"%d" % step, b"s%d" % (step % 2): b"%d" % step})
    for step in (4, 2, 0):
        with store.transaction(0, [A], Stamp(1, 2, step)) as tx:
            assert Entries(tx).all() == states[step]
            Entries(tx).put([b"a"], [b"again"])
        assert stored_entries(store) == {**states[step], b"a": b"again"}
        assert store.stamp(0, A) == Stamp(1, 2, step)


def _others(state: dict[bytes, bytes], step: int) -> dict[bytes, bytes]:
    return {key: value for key, value in state.items() if key not in (b"a", b"s%d" % (step % 2))}


def test_undo_of_undone_steps_is_forgotten(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"before"})
    put(store, Stamp(1, 2, 0), {b"a": b"0"})
    put(store, Stamp(1, 2, 1), {b"a": b"1"})
    put(store, Stamp(1, 2, 0), {b"b": b"0"})
    put(store, Stamp(1, 2, 0), {})
    assert stored_entries(store) == {b"a": b"before"}


def test_a_skipped_step_keeps_the_undo_of_those_before(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1"})
    put(store, Stamp(1, 2, 0), {b"a": b"2"})
    put(store, Stamp(1, 2, 5), {b"a": b"3"})
    put(store, Stamp(1, 2, 3), {})
    assert stored_entries(store) == {b"a": b"2"}
    put(store, Stamp(1, 2, 0), {})
    assert stored_entries(store) == {b"a": b"1"}


def test_a_new_batch_forgets_the_undo_of_the_last(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1"})
    put(store, Stamp(1, 2, 0), {b"a": b"2"})
    put(store, Stamp(1, 2, 1), {b"a": b"3"})
    put(store, Stamp(1, 3, 0), {b"b": b"1"})
    put(store, Stamp(1, 3, 0), {})
    assert stored_entries(store) == {b"a": b"3"}


def test_state_ids_of_a_transaction_are_undone_each_to_its_own_batch(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1"})
    put(store, Stamp(1, 1), {b"a": b"1"}, state_id=B)
    put(store, Stamp(1, 2), {b"a": b"2"}, state_id=B)
    with store.transaction(0, [A, B], Stamp(1, 2)) as tx:
        assert Entries(tx, A).all() == {b"a": b"1"}
        assert Entries(tx, B).all() == {b"a": b"1"}
        Entries(tx).put([b"a"], [b"2"])
    assert (stored_entries(store, A), stored_entries(store, B)) == ({b"a": b"2"}, {b"a": b"1"})
    assert store.stamp(0, A) == store.stamp(0, B) == Stamp(1, 2)


def test_a_higher_epoch_takes_over_and_the_old_one_is_fenced_off(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1"})
    put(store, Stamp(1, 2), {b"a": b"2"})
    put(store, Stamp(2, 2), {b"b": b"2"})
    assert stored_entries(store) == {b"a": b"1", b"b": b"2"}
    for zombie in (Stamp(1, 2), Stamp(1, 3), Stamp(0, 9)):
        with pytest.raises(Fenced, match=A), store.transaction(0, [B, A], zombie) as tx:
            Entries(tx, B).put([b"z"], [b"z"])
    assert stored_entries(store, B) == {}
    assert store.stamp(0, A) == Stamp(2, 2)


def test_an_earlier_batch_is_refused(store: Store) -> None:
    put(store, Stamp(1, 5), {b"a": b"1"})
    for stamp in (Stamp(1, 4), Stamp(1, 4, 9), Stamp(2, 4)):
        with pytest.raises(StaleBatch, match="batch 4"), store.transaction(0, [A], stamp):
            pass
    assert store.stamp(0, A) == Stamp(1, 5)


def test_without_undo_a_batch_cannot_run_again(store: Store) -> None:
    with store.transaction(0, [A], Stamp(1, 1), undo=False) as tx:
        Entries(tx).put([b"a"], [b"1"])
    with pytest.raises(StaleBatch, match="without undo"), store.transaction(0, [A], Stamp(1, 1)):
        pass
    assert store.stamp(0, A) == Stamp(1, 1)
    put(store, Stamp(1, 1, 1), {b"a": b"2"})
    put(store, Stamp(1, 1, 1), {b"b": b"2"})
    assert stored_entries(store) == {b"a": b"1", b"b": b"2"}
    with pytest.raises(StaleBatch, match="without undo"), store.transaction(0, [A], Stamp(2, 1)):
        pass
    put(store, Stamp(1, 2), {b"a": b"3"})
    put(store, Stamp(1, 2), {})
    assert stored_entries(store) == {b"a": b"1", b"b": b"2"}


def test_a_dropped_state_id_starts_from_nothing(store: Store) -> None:
    for shard in range(SHARDS):
        for state_id in (A, B):
            put(
                store,
                Stamp(9, 9),
                {b"%d" % number: os.urandom(100) for number in range(500)},
                state_id=state_id,
                shard=shard,
            )
    store.drop(A)
    for shard in range(SHARDS):
        assert store.state_ids(shard) == [B]
        assert store.stamp(shard, A) is None
        assert stored_entries(store, A, shard=shard) == {}
        assert len(stored_entries(store, B, shard=shard)) == 500
    put(store, Stamp(1, 1), {b"a": b"1"})
    put(store, Stamp(1, 1), {})
    assert stored_entries(store) == {}


def test_sizes_are_of_what_is_there(store: Store) -> None:
    assert [size.shard for size in store.sizes()] == list(range(SHARDS))
    put(store, Stamp(1, 1), {b"%d" % number: os.urandom(100) for number in range(500)}, shard=1)
    empty, filled = store.sizes()
    assert empty.entries == 0
    assert filled.entries >= 500
    assert filled.size >= 50_000


# exactly once


@pytest.mark.parametrize("by_step", [True, False], ids=["checkpoint of steps", "checkpoint of batches"])
@pytest.mark.parametrize("stride", [61, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_job_interrupted_at_any_place_ends_the_same(store: Store, by_step: bool, stride: int) -> None:
    expected, turn = scenario.uninterrupted(), 1
    while (interrupted := _interrupted(store, by_step, turn)) is not None:
        assert not scenario.wrongs(expected, *interrupted), f"interrupted at place {turn}"
        for shard in range(SHARDS):
            for state_id in store.state_ids(shard):
                store.drop(state_id)
        turn += stride
    assert turn > 61


class Interrupted(Exception):
    pass


def _interrupted(store: Store, by_step: bool, turn: int) -> tuple[str, scenario.Emitted] | None:
    """Return the state and the output of a job that is interrupted at a place; None if it does not get there."""
    position: list[tuple[int, int]] = [(0, 0)]
    output: scenario.Emitted = []
    job = scenario.Job(
        store, lambda: position[-1], position.append, by_step, lambda place, seen: output.append((place, seen))
    )
    with failpoints.armed("*", turn, _interrupt):
        try:
            job.run()
        except Interrupted:
            pass
        else:
            return None
    job.run()
    return scenario.dump(store), output


def _interrupt() -> None:
    raise Interrupted
