"""Backfill: computing the state of new operators from the history of what they read, by the same stages.

It runs between two batches. New operators have state of their own and none of the old ones reads from them, so the ones already
running lose and repeat nothing. A backfill that was cut short is done again from nothing.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from umbel.operators.operator import RowWise
from umbel.plan.execute import InProcess
from umbel.plan.flow import Outbox, spread, timed
from umbel.plan.graph import Graph, Node
from umbel.runtime.batch import Told
from umbel.runtime.progress import EventTime
from umbel.spark.envelopes import SCHEMA, batches
from umbel.spark.tasks import BatchContext, Task, posted, settled
from umbel.state.port import Stamp

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from umbel.runtime.deployment import Deployment

BEFORE_ALL = -1
"""The batch number of a backfill: earlier than any of the live job."""


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
            self._run(fresh)
        if fresh:
            catalog.backfill(fresh, done=True)
        self._take_frontiers(time)

    def _run(self, fresh: frozenset[str]) -> None:
        items = [(json.dumps([node.number, self.stamp.batch - 1]),) for node in self.graph.history_of(fresh)]
        if not items:
            return
        stamp = Stamp(self.stamp.epoch, BEFORE_ALL)
        context = BatchContext(self.deployment.encode(), self.revision, stamp, only=fresh)
        frame = self.session.createDataFrame(items, "item string").repartition(len(items))
        told, tasks = Told(), min(self.deployment.shards, self.session.sparkContext.defaultParallelism)
        for report in settled(frame.mapInArrow(replaying(context), SCHEMA), self.graph, context, tasks):
            told.heard(report)
        self._finish(told, stamp, fresh)

    def _finish(self, told: Told, stamp: Stamp, fresh: frozenset[str]) -> None:
        """Fire timers, note the frontiers, and write the change logs."""
        changes, nodes, frontiers = self.deployment.changes, self.graph.nodes, dict[int, datetime]()
        InProcess(self.graph, self.deployment.store, fresh).settle(told.result, stamp, frontiers, {})
        for number, frontier in frontiers.items():
            self._frontier(nodes[number].owner, frontier.isoformat())
        ticked = [changes.write_part(nodes[n], stamp, "ticks", each) for n, each in told.result.logged.items()]
        changes.commit(BEFORE_ALL, [*told.parts, *ticked], {node.log: node for node in nodes})

    def _take_frontiers(self, time: EventTime) -> None:
        for node in timed(self.graph):
            if node.owner not in time.frontiers and (noted := self._frontier(node.owner)):
                time.frontiers[node.owner] = datetime.fromisoformat(noted)

    def _frontier(self, owner: str, reached: str = "") -> str:
        # noted apart from the batch's progress: a batch that is run again does not compute history again
        return str(self.deployment.catalog.setting(f"frontier of {owner}", reached))


def replaying(context: BatchContext) -> Task:
    """Return the stage 0 of a backfill: read the change log of a node, hand it to the new ones among its readers."""

    def run(arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deployment = context.opened()
        graph = deployment.graph(context.revision)
        for batch in arrived:
            for text in batch.column(0).to_pylist():
                number, until = json.loads(text)
                outbox, node = Outbox(), graph.nodes[number]
                _hand_on(node, deployment.changes.read(node, until=until), context.only or (), outbox)
                yield from batches(posted(deployment, context, outbox, {}, f"0-{number}"))

    return run


def _hand_on(node: Node, rows: pl.DataFrame, fresh: Container[str], outbox: Outbox) -> None:
    """Give the changes of a node to the new ones among its readers, also through row-wise ones that are not new."""
    new = [(reader, place) for reader, place in node.readers if reader.owner in fresh]
    spread(replace(node, readers=new, is_logged=False), rows, outbox)
    for reader, _ in node.readers:
        if reader.owner not in fresh and not reader.is_logged and isinstance(reader.operator, RowWise):
            _hand_on(reader, reader.operator.apply(rows), fresh, outbox)
