"""One batch of the live job: preparation, stages run in this process, and completion."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from umbel.api.secrets import provide_secrets
from umbel.catalog.catalog import DeadLetter, JobProgress
from umbel.errors import NotSupported
from umbel.functions.guarding import guarded
from umbel.graph.execution import BatchResult, InProcess
from umbel.graph.graph import Graph, GraphNode
from umbel.graph.stages import Moved, StageOutput, due
from umbel.graph.threads import in_threads
from umbel.processes.allocation import release_unused_memory
from umbel.processes.status import progressed
from umbel.quality import totals
from umbel.runtime import postponing, retries
from umbel.runtime.batch_sizes import most
from umbel.runtime.changelogs import ChangeLogPart, Dues
from umbel.runtime.dead_letters import DROPPED, DeadLetters
from umbel.runtime.deployment import JOB, LIMIT, MOST, RETAINED_FOR, Deployment
from umbel.runtime.guard import WorkerGuard
from umbel.runtime.intake import Intake, groups_of, landmarks, may_open_at_once, take_in
from umbel.runtime.journal_ends import ENDS, ends_of, reached
from umbel.runtime.letters import Letters
from umbel.runtime.limits import Limits
from umbel.runtime.maintenance import delete_removed, forget_removed
from umbel.runtime.plans import BatchPlan, PlannedSplit
from umbel.runtime.progress import EventTimeProgress, Taken, is_due
from umbel.runtime.purge import purge_before
from umbel.runtime.reporting import report_event
from umbel.runtime.state_claim import claim_state
from umbel.runtime.switching import switch_caught_up
from umbel.state.port import JournalEnd, Stamp

if TYPE_CHECKING:
    import polars as pl

TAILED = 2 << 20
"""Bytes of input up to which the changes of a batch go to the tails of the change logs, and not into their tables at once."""


Counts = Mapping[tuple[str, str], int]
_Part = list[tuple[int, Sequence[PlannedSplit]]]


@dataclass(slots=True)
class BatchReport:
    """The merged reports of a batch's stages.

    Args:
        result: changes for the logs, and the largest event times read.
        parts: files of the change logs.
        counts: by dataset and name.
        dead: refused records.
        taken: the event times of the rows read.
        read: the keys of the sources that were read.
        letters: rows that user functions rejected.
        ends: how far tasks have written the journals, by shard.
    """

    result: BatchResult = field(default_factory=BatchResult)
    parts: list[ChangeLogPart] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    dead: list[DeadLetter] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    letters: Letters = field(default_factory=Letters)
    ends: dict[int, JournalEnd] = field(default_factory=dict)

    def add_intake(self, summary: Mapping[str, Any]) -> None:
        """Add the summary of some rows of a split."""
        progressed()
        self.counts.update({(summary["dataset"], name): count for name, count in summary["counts"].items()})
        self.dead += summary["dead"]
        self.taken += summary["taken"]
        self.read.add(summary["source"])

    def dead_letters(self) -> tuple[list[DeadLetter], Mapping[str, int]]:
        """Return the dead letters to store, and the number dropped by dataset."""
        letters = DeadLetters(Limits.from_environment().dead_letters_per_batch)
        letters.add(self.dead)
        return letters.retained()

    def add(self, report: Mapping[str, Any]) -> None:
        """Add a task's report."""
        progressed()
        if "intake" in report:
            self.add_intake(report["intake"])
        self.counts.update(report.get("expected", {}))
        self.parts += report["parts"]
        for shard, end in report.get("ends", {}).items():
            self.ends[shard] = max(end, self.ends.get(shard, end))
        if "letters" in report:
            self.letters.add(report["letters"])
        moved, made = report.get("moved", {}), Counter(report.get("made", {}))
        self.result.add(StageOutput(seen=report["seen"], moved=moved, made=made))


@dataclass(frozen=True)
class MicroBatch:
    """A batch that is about to run.

    Args:
        deployment: the deployment it runs in.
        plan: its input.
        stamp: of its transactions.
        time: event time as of the batch before; advanced when the batch is finished.
        before: the revision of the batch before it, None for the first one.
        waiting: the state ids of operators that do not run yet, because their backfill is not complete.
        dues: the expected content of the change logs after the batch before.
        ends: how far the journals were written by the batch before.
        limit: about how many bytes of input it may read.
        most: about how many batches may read at most, since a larger one has ended the worker; None if none has.
    """

    deployment: Deployment
    plan: BatchPlan
    stamp: Stamp
    time: EventTimeProgress
    before: int | None
    waiting: frozenset[str] = frozenset()
    dues: Dues = field(default_factory=dict)
    ends: Sequence[JournalEnd] = ()
    limit: int = 0
    most: int | None = None

    @classmethod
    def begin(cls, deployment: Deployment, plan: BatchPlan, stamp: Stamp) -> MicroBatch:
        """Return a batch that resumes from the progress of the one before."""
        provide_secrets(deployment.vault)
        before = deployment.catalog.progress(JOB, stamp.batch)
        time = EventTimeProgress.of(before.state if before else {}, plan)
        dues = before.state.get("logs", {}) if before else {}
        revision = before.revision if before else None
        limit = deployment.limit_after(before, plan.revision)
        bound = before.state.get(MOST) if before else None
        return cls(deployment, plan, stamp, time, revision, dues=dues, ends=ends_of(before), limit=limit, most=bound)

    @property
    def opens_at_once(self) -> bool:
        """True if all of its splits may be read at once, in threads."""
        splits = self.plan.splits
        return all(may_open_at_once(self.deployment, self.plan.revision, each) for each in splits)

    def planned_anew(self, plan: BatchPlan) -> MicroBatch:
        """Return the batch with another plan."""
        begun = MicroBatch.begin(self.deployment, plan, self.stamp)
        return replace(self, plan=plan, time=begun.time)

    def after_backfill(self, waiting: frozenset[str]) -> MicroBatch:
        """Return the batch as it runs after a step of a backfill.

        Without waiting operators, and without the expected content of deleted change logs.

        Args:
            waiting: the state ids of operators whose backfill is not complete.
        """
        deleted = self.deployment.backfill_state().deleted_before(self.stamp.batch)
        return replace(self, waiting=waiting, dues={log: due for log, due in self.dues.items() if log not in deleted})

    @property
    def graph(self) -> Graph:
        """The graph of the operators that run."""
        return self.deployment.graph(self.plan.revision, self.waiting)

    def forget_removed(self, retained_for: float = RETAINED_FOR) -> None:
        """Delete operators that the batch before had and this one has not.

        Args:
            retained_for: seconds for which their state is retained for servers that still answer by the old revision.
        """
        now = self.deployment.graph(self.plan.revision)
        if self.before is not None and self.before != self.plan.revision:
            forget_removed(self.deployment, self.deployment.graph(self.before), now, self.time)
        delete_removed(self.deployment, now, retained_for)

    def run_here(self) -> BatchReport:
        """Run the stages in this process."""
        batch_report, guard = BatchReport(), WorkerGuard(self.deployment, has_thread=True)
        output = self._read(batch_report)
        clocks = self.time.clocks(self.graph)
        with self.deployment.changes.writing(self.stamp) as writing:

            def write(name: str, number: int, frames: Sequence[pl.DataFrame]) -> None:
                writing.begin(self.graph.nodes[number], name, frames)

            if is_large := self.plan.size > TAILED:
                for number, frames in output.logged.items():
                    write("read", number, frames)
            with guarded(guard):
                running = InProcess(self.graph, self.deployment.store)
                begin_to_write = partial(write, "computed") if is_large else None
                batch_report.result = running.run(output, self.stamp, clocks, begin_to_write)
            batch_report.parts += writing.calls.results()
        batch_report.letters.add(Letters.of(guard))
        return batch_report

    def _read(self, batch_report: BatchReport) -> StageOutput:
        """Return what was read from the splits, and add it to the report."""
        output = StageOutput()
        for taken in self._taken_in(batch_report.letters):
            batch_report.add_intake(taken.summary)
            output.add(taken.output)
        return output

    def _taken_in(self, letters: Letters) -> list[Intake]:
        """Return what was read from the splits, in their order.

        Args:
            letters: gets the rows that functions rejected.
        """
        watermarks, parts, others = self.time.watermarks(self.graph), list[_Part](), _Part()
        for number, group in enumerate(groups_of(self.deployment, self.plan)):
            if may_open_at_once(self.deployment, self.plan.revision, group[0]):
                parts.append([(number, group)])
            else:
                others.append((number, group))

        def read(part: _Part) -> tuple[Letters, list[tuple[int, Intake]]]:
            guard = WorkerGuard(self.deployment, has_thread=True)
            reading = partial(take_in, self.deployment, self.plan, watermarks=watermarks, guard=guard)
            found = [
                (number, each)
                for number, group in part
                for each in postponing.answered(
                    self.deployment, self.plan.revision, group[0], reading(group, waiting=self.waiting)
                )
            ]
            return Letters.of(guard), found

        taken = list[tuple[int, Intake]]()
        for rejected, found in in_threads(read, [*parts, others] if others else parts):
            letters.add(rejected)
            taken += found
        return [each for _, each in sorted(taken, key=itemgetter(0))]

    def finish(self, batch_report: BatchReport) -> Counts:
        """Write the change logs and commit the batch's progress."""
        graph, time, before = self.graph, self.time, self.time.state
        stream_times = due(graph.nodes, batch_report.result.seen, time.clocks(graph))
        self._note_moves(batch_report.result.moved)
        time.saw(batch_report.taken, batch_report.read, has_final=any(node.is_final for node in graph.nodes))
        time.advance_stream_times(graph, stream_times)
        logs = self._log_changes(batch_report)
        self.deployment.note_store()
        batch_report.counts.update(totals.count(graph, batch_report.result.logged))
        batch_report.counts.update(batch_report.letters.counted(graph))
        batch_report.dead += batch_report.letters.written(graph)
        counts = {key: count for key, count in batch_report.counts.items() if count}
        dead, dropped = batch_report.dead_letters()
        for dataset, count in dropped.items():
            counts[dataset, DROPPED] = counts.get((dataset, DROPPED), 0) + count
        state = {
            **time.state,
            "plan": self.plan.number,
            "due": is_due(graph, before, time.state),
            "waiting": bool(self.waiting),
            "logs": logs,
            LIMIT: self._limit_after(batch_report.result.made),
            MOST: retries.most_after(self),
            ENDS: reached(self.ends, self.deployment.store, batch_report.ends),
        }
        self.deployment.landmarks.note(landmarks(self.deployment, self.plan), JOB, self.stamp.epoch)
        progress = JobProgress(self.stamp.batch, self.plan.revision, state)
        self.deployment.catalog.finish(
            JOB, progress, counts, dead, epoch=self.stamp.epoch, late_bytes=self.deployment.late
        )
        switch_caught_up(self.deployment, self.plan, self.waiting, time.ramps, self.stamp.epoch)
        if self.plan.size > TAILED:
            release_unused_memory()
        return counts

    def _limit_after(self, made: Mapping[int, int]) -> int:
        """Return about how many bytes the next batch may read."""
        return self.deployment.sizes(self.plan.revision, self.most).after(self.limit, self.plan.size, most(made))

    def _note_moves(self, moved: Mapping[int, Moved]) -> None:
        """Record by how much operators have moved rows back; report rows behind the watermark."""
        for node, each, mark in self.time.move(self.graph, moved):
            begin = f"{node.operator.title} has moved a row back to "
            text = (
                f"{begin}{each.oldest:%Y-%m-%d %H:%M:%S}, behind the watermark, {mark:%Y-%m-%d %H:%M:%S}: windows and "
                "duplicates of then may be forgotten. If that matters, give the sources more disorder"
            )
            if not any(event.text.startswith(begin) for event in self.deployment.catalog.events()):
                report_event(self.deployment.catalog, text)

    def _log_changes(self, batch_report: BatchReport) -> Dues:
        """Write the change logs; return the expected content of each."""
        changes, graph, batch = self.deployment.changes, self.graph, self.stamp.batch
        by_log = {node.log: node for node in graph.nodes}
        before = {log: due for log, due in self.dues.items() if log in by_log}
        logged, parts = batch_report.result.logged, batch_report.parts
        # those of a large batch are written; not by the size of the changes: a batch that is run again goes the same way
        retained = [] if self.plan.size > TAILED else [graph.nodes[number] for number in logged]
        changes.commit(batch, parts, by_log)
        moved = {part.log: by_log[part.log] for part in parts}
        moved |= {
            node.log: node
            for node in graph.nodes
            if node.is_logged and node.log not in before and node.state_id not in self.waiting
        }  # backfilled ones

        def keep(node: GraphNode) -> bool:
            last = before[node.log][2] if node.log in before else -1
            changes.keep(node, batch, logged[node.number], last)
            return changes.flush(node)

        moved |= {
            node.log: node for node, is_moved in zip(retained, in_threads(keep, retained), strict=True) if is_moved
        }
        return changes.dues(before, batch, retained, moved.values())


def drain(deployment: Deployment, batches: int = sys.maxsize) -> int:
    """Process all available input in this process, without Spark; return the number of batches.

    For deployments without a worker. The checkpoint of a worker that takes over later does not know these batches.

    Args:
        deployment: the deployment.
        batches: the largest number of batches.

    Raises:
        NotSupported: a pipeline was added to data already processed, which takes a backfill.
    """
    plans, catalog = deployment.plans(), deployment.catalog
    epoch, last, existing = catalog.take_over(JOB), catalog.progress(JOB, sys.maxsize), plans.last()
    done = begun = last.number + 1 if last else 0
    while done - begun < batches and (number := plans.next(done)) != done:
        plan = plans.read(number)
        if done == begun:
            claim_state(deployment, epoch)
        purge_before(deployment, plan.revision, done)
        batch = MicroBatch.begin(deployment, plan, Stamp(epoch, done))
        batch.forget_removed(retained_for=0.0)
        fresh = {node.state_id for node in batch.graph.nodes} - catalog.backfilled()
        if batch.graph.history_of(fresh) and batch.before is not None:
            raise NotSupported("new pipelines must be computed from history", hint="umbel work does that")
        catalog.backfill(fresh, done=True)
        with retries.excusing(catalog, epoch):
            batch = retries.smaller(batch, is_new=number > existing)
            batch, report = postponing.run(batch, MicroBatch.run_here, is_new=number > existing)
            batch.finish(report)
        done = number
    return done - begun
