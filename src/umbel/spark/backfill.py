"""Backfill: computes new operators' state from the history of their inputs, by the same stages.

It is a sequence of steps of bounded size that read history in the order of its batches. While rows arrive that are to be fresh,
steps are Spark jobs beside the batches of the live job, on all slots but one; otherwise they run between batches, on all slots,
several in a row before a batch without rows. The live job meanwhile updates the serving state and appends to the history. What
is left at last is read between two batches. New operators have state of their own and no old
operator reads from them, so the running ones lose and repeat nothing. With the step that reads the last batch they have caught
up, and run with the next one. An interrupted backfill resumes at its current step; one that fails is tried again, and does not
stop the live job.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from threading import Event
from time import monotonic
from time import time as now
from typing import TYPE_CHECKING, Any

from umbel.catalog.catalog import JobEpoch
from umbel.catalog.removals import Removals
from umbel.graph.graph import Graph
from umbel.graph.stages import Moved
from umbel.runtime import history_slices
from umbel.runtime.backfill_input import calls_functions
from umbel.runtime.backfill_state import BACKFILL, BackfillState
from umbel.runtime.batch_sizes import BatchSizes
from umbel.runtime.completeness import note_since
from umbel.runtime.deployment import JOB
from umbel.runtime.history_reader import HistoryReader
from umbel.runtime.progress import EventTimeProgress
from umbel.runtime.rates import LOGS, record
from umbel.runtime.retries import has_lost
from umbel.runtime.sink_ids import begin_anew
from umbel.spark.backfill_beside import StepBeside
from umbel.spark.backfill_step import (
    LAST_ROWS,
    LEAST_ROWS,
    LIVE_ROWS,
    BackfillStep,
    moved_name,
    stream_time_name,
)
from umbel.spark.pace import Pace
from umbel.state.port import Fenced, StaleBatch, Stamp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from umbel.runtime.deployment import Deployment

STOPPED_WITHIN = 10.0
"""Seconds to wait for a cancelled step."""

log = logging.getLogger("umbel.work")


class Backfill:
    """Brings new operators up to date, in steps between batches of the live job.

    Args:
        session: Spark.
        deployment: the deployment.
        pace: decides when a step runs, and whether it is a small one in this process.
        is_threaded: whether large steps that no live batch waits for may run in threads of this process.
    """

    def __init__(self, session: SparkSession, deployment: Deployment, pace: Pace, *, is_threaded: bool = False) -> None:
        self._is_threaded = is_threaded
        self._session, self._deployment, self._pace = session, deployment, pace
        self._sizes = Counter[int]()
        self._sized: tuple[str, int | None] = ("", None)
        self._reader = HistoryReader(deployment)
        self._timed: tuple[int, float] | None = None
        self._beside: StepBeside | None = None
        self._stopping = Event()
        self._left = 0
        self._settings = dict[str, Any]()
        self._by = JobEpoch(JOB, 0)

    def go_on(self, revision: int, stamp: Stamp, time: EventTimeProgress, is_first: bool) -> frozenset[str]:
        """Run a step if any is due; return the state ids of operators still waiting.

        Args:
            revision: the commit whose definitions apply to the batch that runs next.
            stamp: of that batch.
            time: event time as of the batch before; gets the stream times of the operators that were computed.
            is_first: whether no batch was before the next one, so that there is no history.
        """
        catalog, graph, self._by = (
            self._deployment.catalog,
            self._deployment.graph(revision),
            JobEpoch(JOB, stamp.epoch),
        )
        fresh = frozenset(node.state_id for node in graph.nodes) - catalog.backfilled()
        waiting = frozenset[str]() if is_first else graph.awaiting(fresh)
        if fresh - waiting:
            if self._computes(fresh - waiting):
                self.wait()
            with catalog.without_successor(self._by):
                for state_id in () if is_first else fresh - waiting:
                    self._deployment.store.drop(state_id)
            if not is_first:
                note_since(self._deployment, graph, fresh - waiting, self._by)
            catalog.backfill(fresh - waiting, done=True, by=self._by)
        if waiting:
            waiting -= self._some(graph, revision, stamp, waiting, time)
        elif not self.is_running:  # one that a commit has made obsolete ends by itself; no batch waits for it
            self._ended(graph, revision, waiting)
            if (state := self._deployment.backfill_state()).state_ids:
                self._note(state.finished())
        self._restore_time(time, self._deployment.graph(revision, waiting))
        return waiting

    @property
    def is_running(self) -> bool:
        """True while a step runs beside the live job."""
        return self._beside is not None and self._beside.is_running

    def wait(self) -> None:
        """Wait for the step that runs beside the live job, if one does."""
        if self._beside is not None:
            self._beside.wait()

    def stop(self) -> None:
        """Cancel the step that runs beside the live job, if one does.

        Another worker begins it again.
        """
        self._stopping.set()
        if self._beside is not None:
            self._session.sparkContext.cancelJobGroup(BACKFILL)
            self._beside.wait(STOPPED_WITHIN)

    def _some(
        self, graph: Graph, revision: int, stamp: Stamp, waiting: frozenset[str], time: EventTimeProgress
    ) -> frozenset[str]:
        """Run steps of the backfill; return the state ids of completed operators."""
        while not (self.is_running or self._stopping.is_set()):
            completed = self._one(graph, revision, stamp, waiting, time)
            if completed:
                self._settings.clear()
            if completed is None or completed or not self._pace.may_go_on:
                return completed or frozenset()
        return frozenset()

    def _one(
        self, graph: Graph, revision: int, stamp: Stamp, waiting: frozenset[str], time: EventTimeProgress
    ) -> frozenset[str] | None:
        """Run a step if one is due; return the state ids of completed operators.

        None if no other one may follow before the next batch.
        """
        failure = self._ended(graph, revision, waiting)
        state, begun = self._current(graph, stamp, waiting), monotonic()
        is_finishing, since, step = False, self._since(state), self._step(revision, stamp, state, waiting)
        try:
            if failure is not None:
                raise failure
            if not state.is_due(now()) or not self._pace.may_step:
                return None
            self._timed, sizes, is_live = None, self._history(step, state), self._pace.is_live
            if is_live and self._is_far(state.sizes(sizes).left(state.position)) and not state.is_begun_in_driver:
                self._beside = StepBeside(step, state, sizes, since, waiting)
                return None
            is_finishing = step.go_on(state, sizes, time, since, is_live=is_live)
            self._timed = state.step + 1, monotonic()
            self._pace.stepped(self._timed[1] - begun)
            if not is_finishing:
                return frozenset()
            step.finish(self._deployment.backfill_state(), time)
        except (Fenced, StaleBatch):
            raise
        except Exception as error:  # noqa: BLE001  the live job goes on; an event is recorded
            if self._stopping.is_set():  # the jobs of the step were cancelled; the next worker runs it again
                return None
            if is_finishing:  # some timers may have fired, and the next try reads more history before them
                self._begin(graph, step.state_ids, stamp.batch)
            self._failed(error)
            return None
        self._deployment.catalog.backfill(step.state_ids, done=True, by=self._by)
        last = self._deployment.backfill_state()
        record(self._deployment.catalog, LOGS, last.done, last.seconds)
        self._note(last.finished())
        self._reader.release()
        return step.state_ids

    def _is_far(self, rows: int) -> bool:
        """Return whether too many rows are left to be read between two batches.

        They arrive meanwhile: a step beside the batches has to leave fewer than half of those that were there.
        """
        before, self._left = self._left, rows
        return rows > LIVE_ROWS or LAST_ROWS < rows <= before / 2

    def _computes(self, state_ids: frozenset[str]) -> bool:
        """Return whether a running step computes the state of some operators."""
        return self.is_running and self._beside is not None and not state_ids.isdisjoint(self._beside.logs)

    def _ended(self, graph: Graph, revision: int, waiting: frozenset[str]) -> Exception | None:
        """Return why the ended step beside the live job failed, if it did.

        If a commit has made it obsolete, its failure does not count. What it wrote after its operators were removed is
        deleted as their state was.
        """
        beside, self._beside = self._beside, None
        if beside is None:
            return None
        failure = beside.wait()
        self._timed = beside.number + 1, beside.ended
        if beside.belongs_to(revision, waiting):
            return failure
        removed = beside.logs.keys() - {node.state_id for node in graph.nodes}
        if removed:
            Removals(self._deployment.catalog).add({each: beside.logs[each] for each in removed}, now())
        return None

    def _step(self, revision: int, stamp: Stamp, state: BackfillState, waiting: frozenset[str]) -> BackfillStep:
        """Return the next step, without one slot while rows are to be fresh."""
        state_ids, slots = frozenset(state.state_ids), self._session.sparkContext.defaultParallelism
        is_live, parts = self._pace.is_live, (self._session, self._deployment, revision, stamp)
        slots = max(1, slots - 1) if is_live else slots
        others = waiting - state_ids
        is_threaded = self._is_threaded and not is_live
        is_threaded &= not calls_functions(self._deployment.graph(revision, others), state_ids)
        return BackfillStep(*parts, state_ids, others, self._reader, slots, is_live, is_threaded)

    def _current(self, graph: Graph, stamp: Stamp, waiting: frozenset[str]) -> BackfillState:
        """Return the state of the backfill that goes on or begins."""
        state = self._deployment.backfill_state()
        left = waiting.intersection(state.state_ids)
        if not left or state.is_cut_otherwise:
            return self._begin(graph, waiting, stamp.batch)
        if len(left) < len(state.state_ids):  # some were removed by a commit since
            return replace(state, state_ids=tuple(sorted(left)))
        return state

    def _since(self, state: BackfillState) -> float:
        """Return the instant from which a step is timed.

        It is the end of the step before, if that was run by this process.
        """
        return self._timed[1] if self._timed is not None and self._timed[0] == state.step > 0 else monotonic()

    def _begin(self, graph: Graph, state_ids: frozenset[str], batch: int) -> BackfillState:
        """Delete the state of operators before a batch, and begin to compute it."""
        note_since(self._deployment, graph, state_ids, self._by)
        begin_anew(self._deployment, graph, state_ids, self._by)
        deleted = set(self._deployment.backfill_state().deleted_before(batch))
        with self._deployment.catalog.without_successor(self._by):
            for node in graph.nodes:
                if node.state_id in state_ids:
                    self._deployment.store.drop(node.state_id)
                    self._deployment.changes.drop(node.log)
                    deleted.add(node.log)
        operators = (node.operator for node in graph.nodes if node.state_id in state_ids)
        part_rows = BatchSizes.of(operators, LEAST_ROWS, history_slices.PART_ROWS).begin
        state = BackfillState(
            tuple(sorted(state_ids)), began=batch, deleted=tuple(sorted(deleted)), part_rows=part_rows
        )
        self._note(state)
        return state

    def _history(self, step: BackfillStep, state: BackfillState) -> Mapping[int, int]:
        """Return the number of rows of each batch that was not wholly read.

        Counts of earlier calls are cached; only newer batches are counted.
        """
        last, (of, until) = step.stamp.batch - 1, self._sized
        sources = step.graph.history_of(step.state_ids)
        name = " ".join(node.log for node in sources)
        sizes, until = (self._sizes, until) if of == name else (Counter[int](), None)
        for node in sources if until is None or until < last else ():
            sizes.update(self._deployment.changes.sizes(node, until=last, after=until))
        self._sizes, self._sized = sizes, (name, last)
        return {batch: rows for batch, rows in self._sizes.items() if batch > state.position.batch}

    def _failed(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"[:2000]
        state = self._deployment.backfill_state().failed(text, now(), has_ended=has_lost(error))
        log.warning("the backfill failed and is tried again in %.0f s: %s", state.not_before - now(), text)
        self._deployment.catalog.record_event("work", "error", f"backfill: {text}")
        self._note(state)

    def _note(self, state: BackfillState) -> None:
        self._deployment.catalog.note(BACKFILL, state.plain, self._by)

    def _restore_time(self, time: EventTimeProgress, graph: Graph) -> None:
        """Set the event times that backfills have noted, where no batch has any yet."""
        for node in (each for each in graph.nodes if each.is_timed and each.state_id not in time.stream_times):
            if (noted := self._noted(stream_time_name(node))) is not None:
                time.stream_times[node.state_id] = datetime.fromisoformat(noted)
        for node in (each for each in graph.nodes if each.operator.moves_rows and each.state_id not in time.moved):
            if (noted := self._noted(moved_name(node))) is not None:
                time.moved[node.state_id] = Moved.of_plain(noted)

    def _noted(self, name: str) -> Any:
        """Return a setting of the catalog, read once for each backfill."""
        if name not in self._settings:
            self._settings[name] = self._deployment.catalog.noted(name)
        return self._settings[name]
