"""One batch of the live job: what runs around its stages, and the stages themselves where they run in this process."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from umbel.api.secrets import keep_here
from umbel.catalog.catalog import DeadLetter, Progress
from umbel.errors import NotSupported
from umbel.plan import expecting
from umbel.plan.execute import InProcess, Result
from umbel.plan.flow import Outbox
from umbel.plan.graph import Graph
from umbel.runtime.changelogs import Part
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.intake import take_in
from umbel.runtime.plans import Plan
from umbel.runtime.progress import EventTime, is_due
from umbel.runtime.removal import forget_removed
from umbel.state.port import Stamp

Counts = Mapping[tuple[str, str], int]


@dataclass(slots=True)
class Told:
    """What the stages of a batch reported.

    Args:
        result: changes for the logs, and the largest event times read.
        parts: files of the change logs.
        counts: by dataset and name.
        dead: refused records.
        newest: the largest event time taken from each source.
    """

    result: Result = field(default_factory=Result)
    parts: list[Part] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    dead: list[DeadLetter] = field(default_factory=list)
    newest: list[tuple[str, datetime | None]] = field(default_factory=list)

    def took(self, summary: Mapping[str, Any]) -> None:
        """Add what came of some rows of a split."""
        self.counts.update({(summary["dataset"], name): count for name, count in summary["counts"].items()})
        self.dead += summary["dead"]
        self.newest.append((summary["source"], summary["newest"]))

    def heard(self, report: Mapping[str, Any]) -> None:
        """Add a task's report."""
        if "intake" in report:
            self.took(report["intake"])
        self.counts.update(report.get("expected", {}))
        self.parts += report["parts"]
        self.result.add(Outbox(seen=report["seen"]))


@dataclass(frozen=True)
class Batch:
    """A batch that is about to run.

    Args:
        deployment: where things are.
        plan: what it reads.
        stamp: of its transactions.
        time: event time as of the batch before; moved when the batch is finished.
        before: the revision of the batch before it, None for the first one.
    """

    deployment: Deployment
    plan: Plan
    stamp: Stamp
    time: EventTime
    before: int | None

    @classmethod
    def begin(cls, deployment: Deployment, plan: Plan, stamp: Stamp) -> Batch:
        """Return a batch with what the one before it left."""
        keep_here(deployment.vault)
        before = deployment.catalog.progress(JOB, stamp.batch)
        time = EventTime.of(before.state if before else {}, plan.ended)
        return cls(deployment, plan, stamp, time, before.revision if before else None)

    @property
    def graph(self) -> Graph:
        """What it runs."""
        return self.deployment.graph(self.plan.revision)

    def forget_removed(self) -> None:
        """Forget the operators which the batch before had, and this one has not."""
        if self.before is not None and self.before != self.plan.revision:
            forget_removed(self.deployment, self.deployment.graph(self.before), self.graph, self.time)

    def run_here(self) -> Told:
        """Run the stages in this process."""
        told, outbox = Told(), Outbox()
        watermarks = self.time.watermarks(self.graph)
        for split in self.plan.splits:
            for taken in take_in(self.deployment, self.plan.revision, split, watermarks):
                told.took(taken.summary)
                _merge(outbox, taken.outbox)
        told.result = InProcess(self.graph, self.deployment.store).run(outbox, self.stamp, self.time.clocks(self.graph))
        return told

    def finish(self, told: Told) -> Counts:
        """Fire timers, write the change logs, and record the batch: from here on it is done."""
        graph, time, before = self.graph, self.time, self.time.state
        frontiers, clocks = time.frontier_numbers(graph), time.clocks(graph)
        InProcess(graph, self.deployment.store).settle(told.result, self.stamp, frontiers, clocks)
        for source, newest in told.newest:
            time.saw(source, newest)
        time.move_frontiers(graph, frontiers)
        self._log_changes(told)
        told.counts.update(expecting.count(graph, told.result.logged))
        counts = {key: count for key, count in told.counts.items() if count}
        state = {**time.state, "plan": self.plan.number, "due": is_due(graph, before, time.state)}
        progress = Progress(self.stamp.batch, self.plan.revision, state)
        self.deployment.catalog.finish(JOB, progress, counts, told.dead, epoch=self.stamp.epoch)
        return counts

    def _log_changes(self, told: Told) -> None:
        changes, graph = self.deployment.changes, self.graph
        changes.commit(self.stamp.batch, told.parts, {node.log: node for node in graph.nodes})
        for number, frames in told.result.logged.items():
            changes.keep(graph.nodes[number], self.stamp.batch, frames)
            changes.flush(graph.nodes[number])


def _merge(into: Outbox, other: Outbox) -> None:
    for edge, frames in other.frames.items():
        into.frames[edge].extend(frames)
    for number, frames in other.logged.items():
        into.logged[number].extend(frames)


def drain(deployment: Deployment) -> int:
    """Run what there is to read, all of it in this process and without Spark; return how many batches that took.

    For deployments that no worker runs. The checkpoint of one that takes over later does not know these batches.

    Raises:
        NotSupported: a pipeline was added to data already processed, which takes a backfill.
    """
    plans, catalog = deployment.plans(), deployment.catalog
    epoch, last = catalog.take_over(JOB), catalog.progress(JOB, sys.maxsize)
    done = begun = last.number + 1 if last else 0
    while (number := plans.next(done)) != done:
        batch = Batch.begin(deployment, plans.read(number), Stamp(epoch, done))
        batch.forget_removed()
        fresh = {node.owner for node in batch.graph.nodes} - catalog.backfilled()
        if batch.graph.history_of(fresh) and batch.before is not None:
            raise NotSupported("new pipelines must be computed from history", hint="umbel work does that")
        catalog.backfill(fresh, done=True)
        batch.finish(batch.run_here())
        done = number
    return done - begun
