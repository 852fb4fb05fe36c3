"""Backfill: computes new operators' state from the history of their inputs, by the same stages.

It is a sequence of steps of bounded size that read history in the order of its batches, one step between two batches of the
live job, which meanwhile update the serving state and append to the history. While rows arrive that are to be fresh, steps are
small and run in the driver; otherwise they are large Spark jobs. New operators have state of their own and no old
operator reads from them, so the running ones lose and repeat nothing. With the step that reads the last batch they have caught
up, and run with the next one. An interrupted backfill resumes at its current step; one that fails is tried again, and does not
stop the live job.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from time import monotonic
from time import time as now
from typing import TYPE_CHECKING

import polars as pl

from umbel.functions.fingerprint import fingerprint
from umbel.functions.guarding import applied, guarded
from umbel.graph.execution import InProcess
from umbel.graph.graph import Graph, GraphNode
from umbel.graph.stages import StageOutput, emit, timed
from umbel.operators.operator import Keyed, RowWise
from umbel.runtime.backfill_state import BACKFILL, BackfillState
from umbel.runtime.batch import BatchReport
from umbel.runtime.guard import WorkerGuard
from umbel.runtime.history_reader import HistoryReader
from umbel.runtime.history_slices import HistorySlice, after, left, slices
from umbel.runtime.letters import Letters
from umbel.runtime.progress import EventTimeProgress
from umbel.runtime.rates import LOGS, record
from umbel.spark.pace import Pace
from umbel.spark.packets import SCHEMA, batches
from umbel.spark.tasks import BatchContext, Task, later_stages, posted, rejected
from umbel.state.port import Fenced, StaleBatch, Stamp

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from umbel.runtime.deployment import Deployment

BEFORE_ALL = -1
"""The batch number with which a backfill fires its timers: earlier than any of the live job."""
BEGINNING = -(1 << 40)
"""The batch number of a backfill's first step; the others follow."""
ROWS_AT_ONCE = 1_000_000
"""About how many rows each Spark slot reads in one step."""
LIVE_ROWS = 100_000
"""About how many rows a step reads between batches whose rows are to be fresh."""

LONGEST_WAIT = 300.0
"""Seconds between two tries of a backfill that fails, at the most."""

log = logging.getLogger("umbel.work")


class Backfill:
    """Brings new operators up to date, in steps between batches of the live job.

    Args:
        session: Spark.
        deployment: the deployment.
        pace: decides when a step runs, and whether it is a small one in this process.
    """

    def __init__(self, session: SparkSession, deployment: Deployment, pace: Pace) -> None:
        self._session, self._deployment, self._pace = session, deployment, pace
        self._sizes = Counter[int]()
        self._sized: tuple[str, int | None] = ("", None)
        self._reader = HistoryReader(deployment)
        self._timed: tuple[int, float] | None = None

    def go_on(self, revision: int, stamp: Stamp, time: EventTimeProgress, is_first: bool) -> frozenset[str]:
        """Run a step if any is due; return the state ids of operators still waiting.

        Args:
            revision: the commit whose definitions apply to the batch that runs next.
            stamp: of that batch.
            time: event time as of the batch before; gets the stream times of the operators that were computed.
            is_first: whether no batch was before the next one, so that there is no history.
        """
        catalog, graph = self._deployment.catalog, self._deployment.graph(revision)
        fresh = frozenset(node.state_id for node in graph.nodes) - catalog.backfilled()
        waiting = frozenset[str]() if is_first else graph.awaiting(fresh)
        if fresh - waiting:
            for state_id in () if is_first else fresh - waiting:
                self._deployment.store.drop(state_id)
            catalog.backfill(fresh - waiting, done=True)
        if waiting:
            waiting -= self._some(graph, revision, stamp, waiting, time)
        elif (state := self._deployment.backfill_state()).state_ids:
            self._note(state.finished())
        self._restore_stream_times(time, self._deployment.graph(revision, waiting))
        return waiting

    def _some(
        self, graph: Graph, revision: int, stamp: Stamp, waiting: frozenset[str], time: EventTimeProgress
    ) -> frozenset[str]:
        """Run a step of the backfill; return the state ids of completed operators."""
        state, begun = self._current(graph, stamp, waiting), monotonic()
        if not state.is_due(now()) or not self._pace.may_step:
            return frozenset()
        state_ids = frozenset(state.state_ids)
        others = waiting - state_ids
        step = _Step(self._session, self._deployment, revision, stamp, state_ids, others, self._reader)
        is_read, since, self._timed = False, self._since(state), None
        try:
            is_read = step.run(state, self._history(step, state), since, is_live=self._pace.is_live)
            self._timed = state.step + 1, monotonic()
            self._pace.stepped(self._timed[1] - begun)
            if not is_read:
                return frozenset()
            step.finish(self._deployment.backfill_state(), time)
        except (Fenced, StaleBatch):
            raise
        except Exception as error:  # noqa: BLE001  the live job goes on; an event is recorded
            if is_read:  # some timers may have fired, and the next try reads more history before them
                self._begin(graph, state_ids, stamp.batch)
            self._failed(state.failures, error)
            return frozenset()
        self._deployment.catalog.backfill(state_ids, done=True)
        last = self._deployment.backfill_state()
        record(self._deployment.catalog, LOGS, last.done, last.seconds)
        self._note(last.finished())
        self._reader.release()
        return state_ids

    def _current(self, graph: Graph, stamp: Stamp, waiting: frozenset[str]) -> BackfillState:
        """Return the state of the backfill that goes on or begins."""
        state = self._deployment.backfill_state()
        left = waiting.intersection(state.state_ids)
        if not left:
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
        deleted = set(self._deployment.backfill_state().deleted_before(batch))
        for node in graph.nodes:
            if node.state_id in state_ids:
                self._deployment.store.drop(node.state_id)
                self._deployment.changes.drop(node.log)
                deleted.add(node.log)
        state = BackfillState(tuple(sorted(state_ids)), began=batch, deleted=tuple(sorted(deleted)))
        self._note(state)
        return state

    def _history(self, step: _Step, state: BackfillState) -> Mapping[int, int]:
        """Return the number of rows of each batch that was not wholly read.

        Counts of earlier calls are cached; only newer batches are counted.
        """
        last, (of, until) = step.stamp.batch - 1, self._sized
        sources = step.graph.history_of(step.state_ids)
        name = " ".join(node.log for node in sources)
        sizes, until = (self._sizes, until) if of == name else (Counter[int](), None)
        found = [self._deployment.changes.sizes(node, until=last, after=until) for node in sources]
        for each in found:
            sizes.update(each)
        self._sizes, self._sized = sizes, (name, last)
        return {batch: rows for batch, rows in self._sizes.items() if batch > state.position.batch}

    def _failed(self, failures: int, error: Exception) -> None:
        text, wait = f"{type(error).__name__}: {error}"[:2000], min(LONGEST_WAIT, 2.0**failures)
        log.warning("the backfill failed and is tried again in %.0f s: %s", wait, text)
        self._deployment.catalog.record_event("work", "error", f"backfill: {text}")
        noted = self._deployment.backfill_state()
        self._note(replace(noted, failures=failures + 1, error=text, not_before=now() + wait))

    def _note(self, state: BackfillState) -> None:
        self._deployment.catalog.note(BACKFILL, state.plain)

    def _restore_stream_times(self, time: EventTimeProgress, graph: Graph) -> None:
        for node in timed(graph):
            noted = self._deployment.catalog.noted(_stream_time(node))
            if node.state_id not in time.stream_times and noted is not None:
                time.stream_times[node.state_id] = datetime.fromisoformat(noted)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of a backfill.

    Args:
        session: Spark.
        deployment: the deployment.
        revision: the commit whose definitions apply.
        stamp: of the batch that will run next.
        state_ids: the operators that are computed.
        others: operators that wait as well, and for these.
        reader: of the history.
    """

    session: SparkSession
    deployment: Deployment
    revision: int
    stamp: Stamp
    state_ids: frozenset[str]
    others: frozenset[str]
    reader: HistoryReader

    @property
    def graph(self) -> Graph:
        """The operators that are computed, and their inputs."""
        return self.deployment.graph(self.revision, self.others)

    def run(self, state: BackfillState, sizes: Mapping[int, int], begun: float, *, is_live: bool) -> bool:
        """Run the step; return whether all history is read.

        Args:
            state: how far it is.
            sizes: rows of history of each batch that was not read as a whole yet.
            begun: the start of its time, in monotonic seconds.
            is_live: whether rows arrive that are to be fresh: the step is a small one.
        """
        batch_report = self._seen(state)
        if not sizes:
            return True
        state = self._planned(state, sizes, is_live=is_live)
        log.info("backfill of %d new operators: %d of %d rows", len(self.state_ids), state.done, state.total)
        todo = list(slices(sizes, state.position, state.end))
        stamp = Stamp(self.stamp.epoch, BEGINNING + state.step)
        if state.in_driver:
            self._run_here(todo, stamp, batch_report)
        else:
            self._run_in_tasks(todo, stamp, batch_report)
        nodes = self.graph.nodes
        self.deployment.changes.commit_step(state.step, batch_report.parts, {node.log: node for node in nodes})
        self._bury(batch_report.letters, state.step)
        read = left(sizes, state.position) - left(sizes, state.end)
        seen = {nodes[number].state_id: at.isoformat() for number, at in batch_report.result.seen.items()}
        state = state.completed(read, seen, monotonic() - begun)
        self.deployment.catalog.note(BACKFILL, state.plain)
        return state.position.batch >= max(sizes)

    def _planned(self, state: BackfillState, sizes: Mapping[int, int], *, is_live: bool) -> BackfillState:
        """Record what a step reads before it begins, unless it was begun before."""
        if state.end > state.position:
            return state
        rows = LIVE_ROWS if is_live else ROWS_AT_ONCE * self.session.sparkContext.defaultParallelism
        total = state.done + left(sizes, state.position)
        state = state.begun(after(sizes, state.position, rows), total, in_driver=is_live)
        self.deployment.catalog.note(BACKFILL, state.plain)
        return state

    def _seen(self, state: BackfillState) -> BatchReport:
        """Return a report with the event times that earlier steps have read."""
        batch_report = BatchReport()
        for node in self.graph.nodes:
            if node.state_id in state.seen:
                batch_report.result.seen[node.number] = datetime.fromisoformat(state.seen[node.state_id])
        return batch_report

    def _run_in_tasks(self, todo: Sequence[HistorySlice], stamp: Stamp, batch_report: BatchReport) -> None:
        """Run the stages over slices of history, as one Spark job."""
        items = [
            (json.dumps([n.number, asdict(each)]),) for each in todo for n in self.graph.history_of(self.state_ids)
        ]
        slots = self.session.sparkContext.defaultParallelism
        context = BatchContext.of(
            self.deployment, self.session, self.revision, stamp, only=self.state_ids, waiting=self.others
        )
        frame = self.session.createDataFrame(items, "item string").repartition(min(len(items), slots))
        reading = frame.mapInArrow(replaying(context), SCHEMA)
        for report in later_stages(reading, self.graph, context, self.deployment.shards):
            batch_report.add(report)

    def _run_here(self, todo: Sequence[HistorySlice], stamp: Stamp, batch_report: BatchReport) -> None:
        """Run the stages over slices of history in this process."""
        changes, nodes, output = self.deployment.changes, self.graph.nodes, StageOutput()
        guard = WorkerGuard(self.deployment)
        with guarded(guard):
            for node in self.graph.history_of(self.state_ids):
                for each in todo:
                    hand_on(node, self.reader.read(node, each, retain=True), self.state_ids, output)
            made = InProcess(self.graph, self.deployment.store, self.state_ids).run(output, stamp, {})
        batch_report.letters.add(Letters.of(guard))
        batch_report.result.add(StageOutput(seen=made.seen))
        batch_report.parts += [
            changes.write_part(nodes[number], stamp, "step", frames) for number, frames in made.logged.items()
        ]

    def finish(self, state: BackfillState, time: EventTimeProgress) -> None:
        """Fire timers, record the stream times, and write the change logs.

        Args:
            state: of the backfill, after all history is read.
            time: event time as of the batch before.
        """
        batch_report = self._seen(state)
        stamp, graph = Stamp(self.stamp.epoch, BEFORE_ALL), self.graph
        changes, nodes, stream_times = self.deployment.changes, graph.nodes, dict[int, datetime]()
        guard = WorkerGuard(self.deployment)
        with guarded(guard):
            InProcess(graph, self.deployment.store, self.state_ids).settle(
                batch_report.result, stamp, stream_times, time.clocks(graph)
            )
        for number, stream_time in stream_times.items():
            # noted apart from the batch's progress: a batch that is run again does not compute history again
            self.deployment.catalog.note(_stream_time(nodes[number]), stream_time.isoformat())
        ticked = [changes.write_part(nodes[n], stamp, "ticks", each) for n, each in batch_report.result.logged.items()]
        self._bury(Letters.of(guard), state.step)
        changes.commit(BEFORE_ALL, ticked, {node.log: node for node in nodes})

    def _bury(self, letters: Letters, step: int) -> None:
        """Record the rows that functions of the new operators rejected.

        Rows rejected by the others were recorded when they were ingested.
        """
        own = {node.operator.id for node in self.graph.nodes if node.state_id in self.state_ids}
        letters.rejected = [each for each in letters.rejected if each.operator in own]
        letters.counts = Counter({operator: count for operator, count in letters.counts.items() if operator in own})
        if letters:
            counts, dead = letters.counted(self.graph), letters.written(self.graph)
            job = f"backfill {fingerprint(sorted(self.state_ids))}"[:64]  # a backfill that begins anew counts once
            self.deployment.catalog.bury(job, step, counts, dead)


def _stream_time(node: GraphNode) -> str:
    """Return the catalog name of a node's stream time after its backfill."""
    return f"frontier of {node.state_id}"


def _is_known(reader: GraphNode, position: int, fresh: Container[str]) -> bool:
    """Return whether an operator reads an input's history from an existing version history."""
    operator = reader.operator
    if not isinstance(operator, Keyed) or position not in operator.looked_up:
        return False
    versions_table = reader.aliases.get(operator.parents[position].id)
    return versions_table is not None and versions_table not in fresh


def replaying(context: BatchContext) -> Task:
    """Return stage 0 of a backfill: read ranges of history for new operators.

    It reads a range of a node's change log and emits the changes to the new operators among the node's readers.
    """

    def run(arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deployment = context.opened()
        graph = context.graph()
        for batch in arrived:
            for text in batch.column(0).to_pylist():
                number, described = json.loads(text)
                output, node, piece = StageOutput(), graph.nodes[number], HistorySlice(**described)
                rows = HistoryReader(deployment).read(node, piece)
                guard = WorkerGuard(deployment, context.limits)
                with guarded(guard):
                    hand_on(node, rows, context.only or (), output)
                yield from batches(posted(deployment, context, output, {}, f"0-{number}-{piece.first}"))
                yield from batches(rejected(guard))

    return run


def hand_on(node: GraphNode, rows: pl.DataFrame, fresh: Container[str], output: StageOutput) -> None:
    """Emit a node's changes to its new readers, also through old row-wise ones."""
    new = [(reader, at) for reader, at in node.readers if reader.state_id in fresh and not _is_known(reader, at, fresh)]
    emit(replace(node, readers=new, is_logged=False), rows, output)
    for reader, _ in node.readers:
        if reader.state_id not in fresh and not reader.is_logged and isinstance(reader.operator, RowWise):
            hand_on(reader, applied(reader.operator, rows), fresh, output)
