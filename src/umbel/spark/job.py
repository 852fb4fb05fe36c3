"""The live job: one streaming query that runs the whole graph, one Spark job per micro-batch.

A batch too small to be worth Spark tasks is run by the driver itself, by the same stages in the same shard transactions; which
of the two it is depends on its plan alone, so a batch that is run again is run in the same way.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umbel.catalog.catalog import DeadLetter, Progress
from umbel.plan.execute import InProcess, Result
from umbel.plan.flow import Outbox
from umbel.plan.graph import Graph
from umbel.runtime.changelogs import Part
from umbel.runtime.deployment import Deployment
from umbel.runtime.intake import take_in
from umbel.runtime.plans import Plan
from umbel.runtime.progress import EventTime
from umbel.spark.backfill import Backfill
from umbel.spark.envelopes import SCHEMA
from umbel.spark.source import NAME, SplitSource
from umbel.spark.tasks import BatchContext, reading, settled
from umbel.state.port import Stamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

JOB = "live"
SMALL = 2 << 20
"""Batches of at most so many bytes of input are run by the driver."""
INTERVAL = "100 milliseconds"

log = logging.getLogger("umbel.work")


@dataclass(slots=True)
class Told:
    """What the tasks of a batch reported.

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
        self.parts += report["parts"]
        self.result.add(Outbox(seen=report["seen"]))


class LiveJob:
    """The streaming job of a deployment.

    Args:
        deployment: where things are.
        session: Spark.
        small: batches of at most so many bytes of input are run by the driver.
        on_batch: called after each batch with its number and counts.
    """

    def __init__(
        self,
        deployment: Deployment,
        session: SparkSession,
        *,
        small: int = SMALL,
        on_batch: Callable[[int, Mapping[tuple[str, str], int]], None] | None = None,
    ) -> None:
        self._deployment, self._session, self._small = deployment, session, small
        self._plans = deployment.plans()
        self._checkpoint = deployment.directory / "checkpoint" / JOB
        self._on_batch = on_batch
        self._epoch = 0

    def start(self) -> StreamingQuery:
        """Take the job over and start it."""
        self._epoch = self._deployment.catalog.take_over(JOB)
        self._session.dataSource.register(SplitSource)
        splits = self._session.readStream.format(NAME).option("deployment", self._deployment.encode()).load()
        writer = splits.writeStream.foreachBatch(self._batch).queryName(JOB)
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(processingTime=INTERVAL).start()

    def _batch(self, splits: DataFrame, number: int) -> None:
        plan = self._plans.read(self._planned(number))
        deployment = self._deployment
        graph = deployment.graph(plan.revision)
        before = deployment.catalog.progress(JOB, number)
        time = EventTime.of(before.state if before else {})
        stamp = Stamp(self._epoch, number)
        Backfill(self._session, deployment, graph, plan.revision, stamp).attach(is_first=before is None)
        if plan.size <= self._small:
            told = self._here(graph, plan, stamp, time)
        else:
            told = self._in_tasks(splits, graph, plan, stamp, time)
        self._finish(graph, plan, stamp, time, told)

    def _here(self, graph: Graph, plan: Plan, stamp: Stamp, time: EventTime) -> Told:
        """Run a batch in this process."""
        told, outbox = Told(), Outbox()
        watermarks = time.watermarks(graph.datasets.values())
        for split in plan.splits:
            for taken in take_in(self._deployment, plan.revision, split, watermarks):
                told.took(taken.summary)
                _merge(outbox, taken.outbox)
        told.result = InProcess(graph, self._deployment.store).run(outbox, stamp, time.clocks(graph))
        return told

    def _in_tasks(self, splits: DataFrame, graph: Graph, plan: Plan, stamp: Stamp, time: EventTime) -> Told:
        """Run a batch as one Spark job of a stage per depth of the graph."""
        watermarks = time.watermarks(graph.datasets.values())
        context = BatchContext(self._deployment.encode(), plan.revision, stamp, time.clocks(graph), watermarks)
        told = Told()
        for report in settled(splits.mapInArrow(reading(context), SCHEMA), graph, context, self._deployment.shards):
            told.heard(report)
        return told

    def _finish(self, graph: Graph, plan: Plan, stamp: Stamp, time: EventTime, told: Told) -> None:
        """Fire timers, write the change logs, and record the batch: from here on it is done."""
        frontiers = time.frontier_numbers(graph)
        clocks = time.clocks(graph)
        InProcess(graph, self._deployment.store).settle(told.result, stamp, frontiers, clocks)
        for source, newest in told.newest:
            time.saw(source, newest)
        time.move_frontiers(graph, frontiers)
        self._log_changes(graph, stamp, told)
        counts = {key: count for key, count in told.counts.items() if count}
        progress = Progress(stamp.batch, plan.revision, time.state)
        self._deployment.catalog.finish(JOB, progress, counts, told.dead)
        if self._on_batch is not None:
            self._on_batch(stamp.batch, counts)

    def _log_changes(self, graph: Graph, stamp: Stamp, told: Told) -> None:
        changes = self._deployment.changes
        changes.commit(stamp.batch, told.parts, {node.log: node for node in graph.nodes})
        for number, frames in told.result.logged.items():
            changes.keep(graph.nodes[number], stamp.batch, frames)
            changes.flush(graph.nodes[number])

    def _planned(self, number: int) -> int:
        """Return the plan of a batch, from what Spark wrote down before it began."""
        lines = Path(self._checkpoint, "offsets", str(number)).read_text().strip().splitlines()
        return int(json.loads(lines[-1])["plan"])


def _merge(into: Outbox, other: Outbox) -> None:
    for edge, frames in other.frames.items():
        into.frames[edge].extend(frames)
    for number, frames in other.logged.items():
        into.logged[number].extend(frames)
