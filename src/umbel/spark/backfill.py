"""Backfill: computing the state of new operators from the history of what they read, by the same stages.

It runs between two batches, as a sequence of steps of bounded size that go through history in the order of its batches. New
operators have state of their own and none of the old ones reads from them, so the ones already running lose and repeat nothing.
A backfill that was cut short is done again from nothing.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import polars as pl

from umbel.log.changetail import BATCH
from umbel.operators.operator import Keyed, RowWise
from umbel.plan.execute import InProcess
from umbel.plan.flow import Outbox, spread, timed
from umbel.plan.graph import Graph, Node
from umbel.runtime.batch import Told
from umbel.runtime.progress import EventTime
from umbel.spark.envelopes import SCHEMA, batches
from umbel.spark.tasks import BatchContext, Task, posted, settled
from umbel.state.port import Stamp

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from umbel.runtime.deployment import Deployment

BEFORE_ALL = -1
"""The batch number of a backfill's last step: earlier than any of the live job. The steps before it count down from there."""
ROWS_AT_ONCE = 1_000_000
"""About how many rows a task reads in one step."""

Stretch = tuple[int, int]
"""Batches of history, the first and the last one."""

log = logging.getLogger("umbel.work")


@dataclass(frozen=True, slots=True)
class Backfill:
    """Bring a graph's new operators up to the live job.

    Args:
        session: Spark.
        deployment: where things are.
        graph: what will run next.
        revision: its commit.
        stamp: of the batch that will run next.
    """

    session: SparkSession
    deployment: Deployment
    graph: Graph
    revision: int
    stamp: Stamp

    def attach(self, time: EventTime, *, is_first: bool) -> None:
        """Compute what is missing.

        Args:
            time: event time as of the batch before; gets the frontiers of what was computed.
            is_first: whether no batch was before the next one, so that there is no history.
        """
        catalog = self.deployment.catalog
        fresh = frozenset(node.owner for node in self.graph.nodes) - catalog.backfilled()
        if fresh and not is_first:
            for owner in fresh:
                self.deployment.store.drop(owner)
            self._run(fresh, time)
        if fresh:
            catalog.backfill(fresh, done=True)
        self._take_frontiers(time)

    def _run(self, fresh: frozenset[str], time: EventTime) -> None:
        sources = self.graph.history_of(fresh)
        slots = self.session.sparkContext.defaultParallelism
        stretches = list(_stretches(self._sizes(sources)))
        steps = [stretches[begin : begin + slots] for begin in range(0, len(stretches), slots)]
        told = Told()
        for number, step in enumerate(steps):
            log.info("backfill of %d new operators: step %d of %d", len(fresh), number + 1, len(steps))
            items = [(json.dumps([node.number, *stretch]),) for stretch in step for node in sources]
            self._step(items, Stamp(self.stamp.epoch, BEFORE_ALL + 1 - len(steps) + number), fresh, told)
        self._finish(told, Stamp(self.stamp.epoch, BEFORE_ALL), fresh, time)

    def _sizes(self, sources: list[Node]) -> Mapping[int, int]:
        """Return how many rows of history each batch has."""
        sizes = Counter[int]()
        for node in sources:
            sizes.update(self.deployment.changes.sizes(node, until=self.stamp.batch - 1))
        return sizes

    def _step(self, items: list[tuple[str]], stamp: Stamp, fresh: frozenset[str], told: Told) -> None:
        """Run the stages over stretches of history, as one Spark job."""
        slots = self.session.sparkContext.defaultParallelism
        context = BatchContext(self.deployment.encode(), self.revision, stamp, only=fresh)
        frame = self.session.createDataFrame(items, "item string").repartition(min(len(items), slots))
        reading = frame.mapInArrow(replaying(context), SCHEMA)
        for report in settled(reading, self.graph, context, self.deployment.shards):
            told.heard(report)

    def _finish(self, told: Told, stamp: Stamp, fresh: frozenset[str], time: EventTime) -> None:
        """Fire timers, note the frontiers, and write the change logs."""
        changes, nodes, frontiers = self.deployment.changes, self.graph.nodes, dict[int, datetime]()
        clocks = time.clocks(self.graph)
        InProcess(self.graph, self.deployment.store, fresh).settle(told.result, stamp, frontiers, clocks)
        for number, frontier in frontiers.items():
            # noted apart from the batch's progress: a batch that is run again does not compute history again
            self.deployment.catalog.note(_frontier(nodes[number]), frontier.isoformat())
        ticked = [changes.write_part(nodes[n], stamp, "ticks", each) for n, each in told.result.logged.items()]
        changes.commit(BEFORE_ALL, [*told.parts, *ticked], {node.log: node for node in nodes})

    def _take_frontiers(self, time: EventTime) -> None:
        for node in timed(self.graph):
            noted = self.deployment.catalog.noted(_frontier(node))
            if node.owner not in time.frontiers and noted is not None:
                time.frontiers[node.owner] = datetime.fromisoformat(noted)


def _frontier(node: Node) -> str:
    """Return the name under which the frontier is noted that a node reached by its backfill."""
    return f"frontier of {node.owner}"


def _is_known(reader: Node, place: int, fresh: Container[str]) -> bool:
    """Tell whether an operator finds all history of an input in the timeline of one that is not new."""
    operator = reader.operator
    if not isinstance(operator, Keyed) or place not in operator.looked_up:
        return False
    timeline = reader.aliases.get(operator.parents[place].id)
    return timeline is not None and timeline not in fresh


def _stretches(sizes: Mapping[int, int]) -> Iterator[Stretch]:
    """Yield batches in order, as many at once as have about `ROWS_AT_ONCE` rows."""
    first, rows = None, 0
    for batch in sorted(sizes):
        first, rows = batch if first is None else first, rows + sizes[batch]
        if rows >= ROWS_AT_ONCE or batch == max(sizes):
            yield first, batch
            first, rows = None, 0


def replaying(context: BatchContext) -> Task:
    """Return the stage 0 of a backfill: read a stretch of a node's change log, hand it to the new ones among its readers."""

    def run(arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deployment = context.opened()
        graph = deployment.graph(context.revision)
        for batch in arrived:
            for text in batch.column(0).to_pylist():
                number, first, last = json.loads(text)
                outbox, node = Outbox(), graph.nodes[number]
                rows = deployment.changes.read(node, pl.col(BATCH) >= first, until=last)
                hand_on(node, rows, context.only or (), outbox)
                yield from batches(posted(deployment, context, outbox, {}, f"0-{number}-{first}"))

    return run


def hand_on(node: Node, rows: pl.DataFrame, fresh: Container[str], outbox: Outbox) -> None:
    """Give the changes of a node to the new ones among its readers, also through row-wise ones that are not new."""
    new = [(reader, at) for reader, at in node.readers if reader.owner in fresh and not _is_known(reader, at, fresh)]
    spread(replace(node, readers=new, is_logged=False), rows, outbox)
    for reader, _ in node.readers:
        if reader.owner not in fresh and not reader.is_logged and isinstance(reader.operator, RowWise):
            hand_on(reader, reader.operator.apply(rows), fresh, outbox)
