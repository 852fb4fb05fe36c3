"""Steps of a backfill: slices of history go through the stages of new operators."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from umbel.catalog.catalog import JobEpoch
from umbel.functions.fingerprint import fingerprint
from umbel.functions.guarding import guarded
from umbel.graph.execution import InProcess
from umbel.graph.graph import Graph, GraphNode
from umbel.graph.stages import Moved, StageOutput, due
from umbel.graph.threads import in_threads
from umbel.operators.operator import Clock
from umbel.runtime import retries
from umbel.runtime.backfill_emission import begun_emission, clocks_of, progress_of, stream_times_of
from umbel.runtime.backfill_input import Read, taken_in
from umbel.runtime.backfill_retries import begun_again
from umbel.runtime.backfill_state import BACKFILL, BackfillState
from umbel.runtime.batch import BatchReport
from umbel.runtime.batch_sizes import BatchSizes, most
from umbel.runtime.deployment import JOB
from umbel.runtime.guard import WorkerGuard
from umbel.runtime.history_reader import HistoryReader
from umbel.runtime.history_slices import HistorySizes, HistorySlice
from umbel.runtime.letters import Letters
from umbel.runtime.progress import EventTimeProgress
from umbel.spark.packets import batches
from umbel.spark.priority import mapped
from umbel.spark.tasks import BatchContext, Task, later_stages, posted, rejected
from umbel.state.port import Stamp

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from umbel.runtime.deployment import Deployment

BEFORE_ALL = -1
"""The batch number with which a backfill fires its timers: earlier than any of the live job."""
BEGINNING = -(1 << 40)
"""The batch number of a backfill's first step; the others follow."""
ROWS_AT_ONCE = 1_000_000
"""About how many rows each Spark slot reads in one step, if they are not wide."""
ROWS_BESIDE = 400_000
"""About how many of them beside live batches, which wait for what is written to the same disk."""
BYTES_AT_ONCE = 64 << 20
"""About how many bytes of change logs each Spark slot reads in one step: files are several times smaller than rows in memory."""
LEAST_ROWS = 100
"""About how many rows any step may read."""
LIVE_ROWS = 100_000
"""About how many rows a step reads at most between batches whose rows are to be fresh."""
LAST_ROWS = 10_000
"""About how many rows such a step should read: what arrived during the step before."""

log = logging.getLogger("umbel.work")

Item = tuple[int, HistorySlice]
"""The number of a node, and a slice of its history."""


@dataclass(frozen=True, slots=True)
class BackfillStep:
    """A step of a backfill.

    Args:
        session: Spark.
        deployment: the deployment.
        revision: the commit whose definitions apply.
        stamp: of the batch that will run next.
        state_ids: the operators that are computed.
        others: operators that wait as well, and for these.
        reader: of the history.
        slots: how many tasks run at once.
        is_beside: whether it runs beside live batches.
        is_threaded: whether a large step runs in threads of this process, not in tasks.
    """

    session: SparkSession
    deployment: Deployment
    revision: int
    stamp: Stamp
    state_ids: frozenset[str]
    others: frozenset[str]
    reader: HistoryReader
    slots: int
    is_beside: bool = False
    is_threaded: bool = False

    @property
    def graph(self) -> Graph:
        """The operators that are computed, and their inputs."""
        return self.deployment.graph(self.revision, self.others)

    @property
    def by(self) -> JobEpoch:
        """The worker that runs it."""
        return JobEpoch(JOB, self.stamp.epoch)

    def go_on(
        self,
        state: BackfillState,
        sizes: Mapping[int, int],
        time: EventTimeProgress,
        begun: float,
        *,
        is_live: bool,
    ) -> bool:
        """Run the step; return whether all is done but for the end.

        Args:
            state: how far it is.
            sizes: rows of history of each batch that was not read as a whole yet.
            time: event time as of the batch before.
            begun: the start of its time, in monotonic seconds.
            is_live: whether rows arrive that are to be fresh: the step is a small one.
        """
        is_read = bool(state.clocks) or self.run(state, sizes, begun, is_live=is_live)
        return is_read and self.emit(self.deployment.backfill_state(), time, begun, is_live=is_live)

    def run(self, state: BackfillState, sizes: Mapping[int, int], begun: float, *, is_live: bool) -> bool:
        """Read more history; return whether all of it is read.

        Args:
            state: how far it is.
            sizes: rows of history of each batch that was not read as a whole yet.
            begun: the start of its time, in monotonic seconds.
            is_live: whether rows arrive that are to be fresh: the step is a small one.
        """
        batch_report = self._seen(state)
        if not sizes:
            return True
        full = self._full(is_live=is_live)
        state = begun_again(self.deployment, self.graph, state, self._numbered(state), sizes)
        bound = min(full, state.most or full)
        steps = self._sizes(bound)
        limit = min(state.limit or steps.begin, steps.full)
        history = state.sizes(sizes)
        state = self._planned(state, history, limit, in_driver=is_live)
        log.info("backfill of %d new operators: %d of %d rows", len(self.state_ids), state.done, state.total)
        at_once = min(self._rows_at_once(), max(1, limit // self.slots))
        todo = list(history.slices(state.position, state.end, at_once))
        stamp = self._numbered(state)
        if state.in_driver or self.is_threaded:
            clocks = clocks_of_step(self.graph, batch_report.result.seen)
            self._run_here(self._read_here(todo, batch_report), stamp, batch_report, clocks)
        else:
            self._run_in_tasks(todo, stamp, batch_report)
        self._commit(state.step, batch_report)
        read = history.left(state.position) - history.left(state.end)
        seen, moved = self._plain(batch_report)
        limit = steps.after(limit, read, most(batch_report.result.made))
        most_rows = retries.grown(state.most, read, full) or 0 if state.most else 0
        state = state.completed(read, seen, moved, monotonic() - begun, limit, most_rows)
        self.deployment.catalog.note(BACKFILL, state.plain, self.by)
        return state.position.batch >= max(sizes)

    def _commit(self, step: int, batch_report: BatchReport) -> None:
        """Add what a step made to the change logs, and record the rows it rejected."""
        nodes = {node.log: node for node in self.graph.nodes}
        with self.deployment.catalog.without_successor(self.by):  # a successor may begin anew, with these step numbers
            self.deployment.changes.commit_step(step, batch_report.parts, nodes)
        self._bury(batch_report.letters, step)

    def _full(self, *, is_live: bool) -> int:
        """Return about how many rows a step reads at most."""
        return LIVE_ROWS if is_live else self._rows_at_once() * self.slots

    def _sizes(self, full: int) -> BatchSizes:
        return BatchSizes.of((node.operator for node in self.graph.nodes), LEAST_ROWS, full)

    def _numbered(self, state: BackfillState) -> Stamp:
        """Return the stamp of the next step."""
        return Stamp(self.stamp.epoch, BEGINNING + state.step)

    def _plain(self, batch_report: BatchReport) -> tuple[dict[str, str], dict[str, Sequence[int]]]:
        """Return event times and moves by state id, as they are recorded."""
        nodes, result = self.graph.nodes, batch_report.result
        seen = {nodes[number].state_id: at.isoformat() for number, at in result.seen.items()}
        return seen, {nodes[number].state_id: each.plain for number, each in result.moved.items()}

    def emit(self, state: BackfillState, time: EventTimeProgress, begun: float, *, is_live: bool) -> bool:
        """Emit some of the results that wait; return whether only the last are left.

        Args:
            state: of the backfill, after all history is read.
            time: event time as of the batch before.
            begun: the start of its time, in monotonic seconds.
            is_live: whether rows arrive that are to be fresh: the step is a small one.
        """
        if not state.clocks:
            rows = lambda: self._sizes(self._full(is_live=is_live)).begin  # noqa: E731
            state = begun_emission(self.deployment, self.graph, state, time, rows)
            self.deployment.catalog.note(BACKFILL, state.plain, self.by)
        if not state.clocks:
            return True
        graph, batch_report, clocks = self.graph, self._seen(state), clocks_of(self.graph, state.clocks)
        self._run_here(StageOutput(), self._numbered(state), batch_report, clocks)
        self._commit(state.step, batch_report)
        computed = [node for node in graph.nodes if node.state_id in self.state_ids]
        due_now = due(computed, batch_report.result.seen, clocks)
        passed = {
            graph.nodes[number].state_id: at.isoformat()
            for number, at in due_now.items()
            if graph.nodes[number].is_final
        }
        state = state.emitted(*self._plain(batch_report), passed, monotonic() - begun)
        self.deployment.catalog.note(BACKFILL, state.plain, self.by)
        return False

    def _planned(self, state: BackfillState, history: HistorySizes, rows: int, *, in_driver: bool) -> BackfillState:
        """Record what a step reads before it begins.

        One that was begun before reads the same.
        """
        if not state.end > state.position:
            total = state.done + history.left(state.position)
            state = state.begun(history.after(state.position, rows), total, in_driver=in_driver)
        self.deployment.catalog.note(BACKFILL, state.plain, self.by)
        return state

    def _rows_at_once(self) -> int:
        """Return how many rows a slot reads at once, fewer where rows are wide."""
        sizes = [self.deployment.changes.measure(node) for node in self.graph.history_of(self.state_ids)]
        width = max((size / rows for rows, size in sizes if rows), default=1.0)
        most = ROWS_BESIDE if self.is_beside else ROWS_AT_ONCE
        return max(1, int(min(most, BYTES_AT_ONCE / max(1.0, width))))

    def _seen(self, state: BackfillState) -> BatchReport:
        """Return a report with the event times and moves of earlier steps."""
        batch_report = BatchReport()
        for node in self.graph.nodes:
            if node.state_id in state.seen:
                batch_report.result.seen[node.number] = datetime.fromisoformat(state.seen[node.state_id])
            if node.state_id in state.moved:
                batch_report.result.moved[node.number] = Moved.of_plain(state.moved[node.state_id])
        return batch_report

    def _run_in_tasks(self, todo: Sequence[HistorySlice], stamp: Stamp, batch_report: BatchReport) -> None:
        """Run the stages over slices of history, as one Spark job."""
        sources = self.graph.history_of(self.state_ids)
        divided = shares([(node.number, each) for each in todo for node in sources], self.slots)
        context = BatchContext.of(
            self.deployment,
            self.session,
            self.revision,
            stamp,
            clocks=clocks_of_step(self.graph, batch_report.result.seen),
            only=self.state_ids,
            waiting=self.others,
            yields=self.is_beside,
        )
        numbers = self.session.range(0, len(divided), numPartitions=len(divided))
        reading = mapped(numbers, replaying(context, divided), yields=context.yields)
        for report in later_stages(reading, self.graph, context):
            batch_report.add(report)

    def _read_here(self, todo: Sequence[HistorySlice], batch_report: BatchReport) -> StageOutput:
        """Take slices of history in, in this process.

        Slices of a batch that is read part by part are read in turn, others in threads.
        """
        graph, output = self.graph, StageOutput()

        def read(item: Item) -> tuple[StageOutput, Letters]:
            node, retain = graph.nodes[item[0]], not self.is_threaded
            reading = _reading(self.reader, node, item[1], retain=retain)
            made, guard = taken_in(node, reading, self.state_ids, self._new_guard)
            return made, Letters.of(guard)

        items = [(node.number, each) for node in graph.history_of(self.state_ids) for each in todo]
        for made, letters in in_threads(read, items) if self.is_threaded else map(read, items):
            batch_report.letters.add(letters)
            output.add(made)
        return output

    def _run_here(
        self, output: StageOutput, stamp: Stamp, batch_report: BatchReport, clocks: Mapping[int, Clock]
    ) -> None:
        """Run the stages over what was taken in, in this process."""
        graph, guard = self.graph, self._new_guard()
        with self.deployment.changes.writing(stamp) as writing:

            def write(number: int, frames: Sequence[pl.DataFrame]) -> None:
                writing.begin(graph.nodes[number], "step", frames)

            for number, frames in output.logged.items():
                write(number, frames)
            with guarded(guard):
                running = InProcess(graph, self.deployment.store, self.state_ids)
                result = running.run(output, stamp, clocks, write)
            batch_report.parts += writing.calls.results()
        batch_report.letters.add(Letters.of(guard))
        batch_report.result.add(StageOutput(seen=result.seen, moved=result.moved, made=result.made))

    def _new_guard(self) -> WorkerGuard:
        return WorkerGuard(self.deployment, has_thread=True)

    def finish(self, state: BackfillState, time: EventTimeProgress) -> None:
        """Emit results that waited for the watermark, and write the change logs.

        The stream times are recorded, too, and how far back rows were moved.

        Args:
            state: of the backfill, after all history is read.
            time: event time as of the batch before.
        """
        batch_report = self._seen(state)
        stamp, graph = Stamp(self.stamp.epoch, BEFORE_ALL), self.graph
        clocks = (progress_of(state, time, graph) if state.passed else time).clocks(graph)
        changes, nodes, guard = self.deployment.changes, graph.nodes, self._new_guard()
        with guarded(guard):
            running = InProcess(graph, self.deployment.store, self.state_ids)
            made = running.run(StageOutput(seen=batch_report.result.seen), stamp, clocks)
        computed = [node for node in nodes if node.state_id in self.state_ids]
        # noted apart from the batch's progress: a batch that is run again does not compute history again
        before = stream_times_of(state, graph)
        passed = {node.number: before[node.state_id] for node in computed if node.state_id in before}
        for number, stream_time in {**passed, **due(computed, made.seen, clocks)}.items():
            self.deployment.catalog.note(stream_time_name(nodes[number]), stream_time.isoformat(), self.by)
        batch_report.result.add(StageOutput(moved=made.moved))
        for number, each in batch_report.result.moved.items():
            self.deployment.catalog.note(moved_name(nodes[number]), each.plain, self.by)
        ticked = [changes.write_part(nodes[n], stamp, "ticks", each) for n, each in made.logged.items()]
        self._bury(Letters.of(guard), state.step)
        with self.deployment.catalog.without_successor(self.by):
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
            self.deployment.catalog.bury(job, step, counts, dead, self.by)


def clocks_of_step(graph: Graph, seen: Mapping[int, datetime]) -> dict[int, Clock]:
    """Return the clocks of a step: the newest rows of the steps before it.

    They have no watermark, so results that wait for the watermark wait for the end of the backfill.
    """
    return {node.number: Clock(stream_time=seen.get(node.number), waits=True) for node in graph.nodes if node.is_keyed}


def stream_time_name(node: GraphNode) -> str:
    """Return the catalog name of a node's stream time after its backfill."""
    return f"frontier of {node.state_id}"


def moved_name(node: GraphNode) -> str:
    """Return the catalog name of the distance by which a node has moved rows back."""
    return f"moved by {node.state_id}"


def _reading(reader: HistoryReader, node: GraphNode, piece: HistorySlice, *, retain: bool = False) -> Read:
    """Return the function that reads a slice of a node's history."""
    return lambda columns: reader.read(node, piece, retain=retain, columns=columns)


def shares(todo: Sequence[Item], tasks: int) -> list[list[Item]]:
    """Divide slices between tasks, the largest first, each to the task with the fewest rows."""
    divided, rows = [list[Item]() for _ in range(min(tasks, len(todo)))], Counter[int]()
    for item in sorted(todo, key=lambda item: item[1].rows, reverse=True):
        least = min(range(len(divided)), key=lambda share: (rows[share], share))
        divided[least].append(item)
        rows[least] += max(1, item[1].rows)
    return divided


def replaying(context: BatchContext, divided: Sequence[Sequence[Item]]) -> Task:
    """Return stage 0 of a backfill: read slices of history for new operators.

    It reads slices of a node's change log and emits the changes to the new operators among the node's readers.

    Args:
        context: of the step.
        divided: the slices of each task; the numbers of tasks arrive as rows.
    """

    def run(arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deployment = context.opened()
        graph, reader = context.graph(), HistoryReader(deployment)
        for batch in arrived:
            for number, piece in (item for share in batch.column(0).to_pylist() for item in divided[share]):
                node, new_guard = graph.nodes[number], partial(WorkerGuard, deployment, context.limits)
                read = _reading(reader, node, piece)
                output, guard = taken_in(node, read, context.only or (), new_guard)
                name = f"0-{number}-{piece.first}-{piece.begin}"
                yield from batches(posted(deployment, context, output, {}, name))
                yield from batches(rejected(guard))

    return run
