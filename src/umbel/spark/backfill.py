"""Backfill: computing the state of new operators from the history of what they read, by the same stages.

It runs between two batches. New operators have state of their own and none of the old ones reads from them, so the ones already
running lose and repeat nothing. A backfill that was cut short is done again from nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from umbel.plan.flow import Outbox, spread
from umbel.plan.graph import Graph, Node
from umbel.spark.envelopes import SCHEMA, batches
from umbel.spark.tasks import BatchContext, Task, posted, settled
from umbel.state.port import Stamp

if TYPE_CHECKING:
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

    def attach(self, *, is_first: bool) -> None:
        """Compute what is missing, and forget the state of operators that are gone."""
        catalog = self.deployment.catalog
        done = catalog.backfilled()
        fresh = {node.owner for node in self.graph.nodes} - done
        if fresh and not is_first:
            for owner in fresh:
                self.deployment.store.drop(owner)
            self._run(fresh)
        if fresh:
            catalog.backfill(fresh, done=True)

    def _run(self, fresh: set[str]) -> None:
        sources = [node for node in self.graph.nodes if node.owner not in fresh and _feeds(node, fresh)]
        items = [(json.dumps([node.number, sorted(fresh)]),) for node in sources]
        if not items:
            return
        context = BatchContext(self.deployment.encode(), self.revision, Stamp(self.stamp.epoch, BEFORE_ALL))
        frame = self.session.createDataFrame(items, "item string").repartition(len(items))
        reports = settled(frame.mapInArrow(replaying(context), SCHEMA), self.graph, context, self.deployment.shards)
        parts = [part for report in reports for part in report["parts"]]
        self.deployment.changes.commit(BEFORE_ALL, parts, {node.log: node for node in self.graph.nodes})


def _feeds(node: Node, fresh: set[str]) -> bool:
    return node.is_logged and any(_leads_to(reader, fresh) for reader, _ in node.readers)


def _leads_to(node: Node, fresh: set[str]) -> bool:
    return node.owner in fresh or (not node.is_keyed and any(_leads_to(reader, fresh) for reader, _ in node.readers))


def replaying(context: BatchContext) -> Task:
    """Return the stage 0 of a backfill: read the change log of a node, hand it to the new ones among its readers."""

    def run(arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deployment = context.opened()
        graph = deployment.graph(context.revision)
        for batch in arrived:
            for text in batch.column(0).to_pylist():
                number, fresh = json.loads(text)
                outbox = Outbox()
                _hand_on(graph.nodes[number], deployment.changes.read(graph.nodes[number]), set(fresh), outbox)
                yield from batches(posted(deployment, context, outbox, {}, f"0-{number}"))

    return run


def _hand_on(node: Node, rows: Any, fresh: set[str], outbox: Outbox) -> None:
    only = [(reader, place) for reader, place in node.readers if reader.owner in fresh]
    through = Node(node.operator, node.parents, node.owner, node.stage, node.number, readers=only)
    spread(through, rows, outbox)
