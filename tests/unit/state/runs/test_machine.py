"""Shards against dictionaries: random batches, batches again, older epochs, maintenance, other readers, and reopening."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.state.runs.tables import (
    COLLECTED,
    DAY,
    REPLACED,
    SUMMED,
    TABLES,
    ZERO,
    A,
    B,
    Model,
    Row,
    found,
    opened,
    scanned,
    write,
)
from umbel.state.port import Fenced, StaleBatch, Stamp
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.memtable import state_id_of

ADDRESS = st.tuples(st.integers(0, 5), st.integers(0, 60))
TEXTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60), st.sampled_from("xyz")), max_size=12)
NUMBERS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60), st.integers(-9, 9)), max_size=12)
Writes = tuple[list[Row], list[Row], list[Row], list[tuple[int, int]]]
WRITES = st.tuples(TEXTS, NUMBERS, TEXTS, st.lists(ADDRESS, max_size=4))
STATE_IDS = st.sampled_from([(A,), (B,), (A, B)])


class Shards(RuleBasedStateMachine):
    """A shard, a reader of it in another object, and the model: its state now, and before each step of the last batch."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.shard, self.reader = opened(self.folder), opened(self.folder)
        self.models = {A: Model(), B: Model()}
        self.stamps: dict[str, Stamp] = {}
        self.before: dict[str, dict[int, Model]] = {A: {}, B: {}}
        self.batch, self.epoch = 0, 1

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def _transact(self, state_ids: tuple[str, ...], stamp: Stamp, writes: Writes, horizon: int | None = None) -> None:
        with self.shard.transaction(state_ids, stamp) as tx:
            for state_id in state_ids:
                self._begin(state_id, stamp)
            self._compare_all(lambda table: found(tx, table), state_ids)
            for table, rows in zip((REPLACED, SUMMED, COLLECTED), writes, strict=False):
                if state_id_of(table) in state_ids:
                    write(tx, table, rows, writes[3])  # type: ignore[arg-type]
                    self.models[state_id_of(table)].write(table, rows, writes[3])  # type: ignore[arg-type]
                    if horizon is not None:
                        tx.expire(table, ZERO + horizon * DAY / 24)
                        model = self.models[state_id_of(table)]
                        model.horizon = max(horizon, model.horizon)
            self._compare_all(lambda table: found(tx, table), state_ids)

    def _begin(self, state_id: str, stamp: Stamp) -> None:
        known, before = self.stamps.get(state_id), self.before[state_id]
        if known is not None and known.batch == stamp.batch:
            steps = [step for step in before if step >= stamp.step]
            if steps:
                self.models[state_id] = before[min(steps)]
                for step in steps:
                    del before[step]
        else:
            before.clear()
        before[stamp.step] = self.models[state_id].copy()
        self.stamps[state_id] = stamp

    @rule(state_ids=STATE_IDS, writes=WRITES)
    def next_batch(self, state_ids: tuple[str, ...], writes: Writes) -> None:
        self.batch += 1
        self._transact(state_ids, Stamp(self.epoch, self.batch), writes)

    @precondition(lambda self: self.batch)
    @rule(state_ids=STATE_IDS, writes=WRITES, step=st.integers(0, 2))
    def same_batch(self, state_ids: tuple[str, ...], writes: Writes, step: int) -> None:
        self._transact(state_ids, Stamp(self.epoch, self.batch, step), writes)

    @rule(state_ids=STATE_IDS, writes=WRITES, horizon=st.integers(0, 60))
    def batch_that_expires(self, state_ids: tuple[str, ...], writes: Writes, horizon: int) -> None:
        self.batch += 1
        self._transact(state_ids, Stamp(self.epoch, self.batch), writes, horizon)

    @precondition(lambda self: self.stamps)
    @rule(state_ids=STATE_IDS, writes=WRITES)
    def raised(self, state_ids: tuple[str, ...], writes: Writes) -> None:
        with suppress(KeyError), self.shard.transaction(state_ids, Stamp(self.epoch, self.batch + 1)) as tx:
            if A in state_ids:
                write(tx, SUMMED, writes[1])
            raise KeyError

    @rule()
    def take_over(self) -> None:
        self.epoch += 1
        self._transact((A, B), Stamp(self.epoch, self.batch), ([], [], [], []))
        with pytest.raises(Fenced), self.shard.transaction([A], Stamp(self.epoch - 1, self.batch + 1)):
            pass
        if self.batch:
            with pytest.raises(StaleBatch), self.shard.transaction([B], Stamp(self.epoch, self.batch - 1)):
                pass

    @rule()
    def maintained(self) -> None:
        maintain(self.shard)

    @rule()
    def maintained_by_another(self) -> None:
        maintain(self.reader)

    @rule()
    def reopened(self) -> None:
        self.shard = opened(self.folder)

    @rule()
    def writers_change(self) -> None:
        self.shard, self.reader = self.reader, self.shard

    @rule(state_id=st.sampled_from([A, B]))
    def dropped(self, state_id: str) -> None:
        self.shard.drop(state_id)
        self.models[state_id], self.before[state_id] = Model(), {}
        self.stamps.pop(state_id, None)

    def _compare_all(self, read, state_ids: tuple[str, ...] = (A, B)) -> None:  # type: ignore[no-untyped-def]
        for table in TABLES:
            if state_id_of(table) in state_ids:
                assert read(table) == self.models[state_id_of(table)].rows(table)

    @invariant()
    def readers_see_the_model(self) -> None:
        snapshot = self.reader.snapshot()
        self._compare_all(lambda table: found(snapshot, table))
        self._compare_all(lambda table: scanned(snapshot, table))
        for state_id in (A, B):
            assert self.reader.stamp(state_id) == self.shard.stamp(state_id) == self.stamps.get(state_id)


Shards.TestCase.settings = settings(max_examples=8, stateful_step_count=20, deadline=None)
TestShards = Shards.TestCase
