"""What runs inside Spark's Python workers: the stages of a batch, each over the envelopes of the stage before.

The functions made here travel to the workers with nothing but a `BatchContext`; graph, store and sources are opened there, once
per process. Nothing is done outside shard transactions that would matter if a stage were computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from umbel.operators.operator import Clock
from umbel.state.port import Stamp

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from umbel.plan.flow import Outbox
    from umbel.plan.graph import Graph
    from umbel.runtime.deployment import Deployment

Task = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What a task must know of its batch.

    Args:
        deployment: where things are, as JSON.
        revision: the commit whose definitions apply.
        stamp: of the batch.
        clocks: event time as of the batch before, by node number.
        watermarks: of each source as of the batch before, by its key.
        only: the owners of the nodes that run; None for all.
    """

    deployment: str
    revision: int
    stamp: Stamp
    clocks: Mapping[int, Clock] = field(default_factory=dict)
    watermarks: Mapping[str, datetime] = field(default_factory=dict)
    only: frozenset[str] | None = None

    def opened(self) -> Deployment:
        """Return the deployment, opened once per process."""
        from umbel.api.secrets import keep_here
        from umbel.runtime.deployment import Deployment

        deployment = Deployment.decode(self.deployment)
        keep_here(deployment.vault)
        return deployment


def reading(context: BatchContext, plan: int) -> Task:
    """Return stage 0: open the splits of a plan that arrive as numbers, validate their rows, run what is row-wise."""

    def run(arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from umbel.runtime.intake import take_in
        from umbel.spark.envelopes import batches

        deployment = context.opened()
        splits = deployment.plans().read(plan).splits
        for batch in arrived:
            for number in batch.column(0).to_pylist():
                for taken in take_in(deployment, context.revision, splits[number], context.watermarks):
                    told = {"intake": taken.summary}
                    yield from batches(posted(deployment, context, taken.outbox, told, f"0-{taken.name}"))

    return run


def merging(context: BatchContext, stage: int) -> Task:
    """Return a later stage: for each shard, one transaction over what arrived for it."""

    def run(arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from umbel.plan.flow import Outbox, run_shard
        from umbel.spark.envelopes import Mail, batches

        deployment = context.opened()
        graph, store = deployment.graph(context.revision), deployment.store
        nodes = graph.stage(stage, context.only)
        mail = Mail.sort(arrived, {node.number for node in nodes})
        yield from batches(mail.onward)
        for shard in sorted(mail.blobs):
            outbox, inbox = Outbox(), mail.open(shard)
            with store.transaction(shard, [node.owner for node in nodes], context.stamp) as transaction:
                run_shard(nodes, inbox, transaction, context.clocks, outbox)
            del mail.blobs[shard], inbox
            yield from batches(posted(deployment, context, outbox, {}, f"{stage}-{shard}"))

    return run


def posted(
    deployment: Deployment, context: BatchContext, outbox: Outbox, told: Mapping[str, Any], name: str
) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield the envelopes of an outbox: its changes, then a report of the rest."""
    from umbel.plan import expecting
    from umbel.spark.envelopes import address, report

    graph = deployment.graph(context.revision)
    yield from address(graph, outbox, deployment.shards)
    parts = [
        deployment.changes.write_part(graph.nodes[number], context.stamp, name, frames)
        for number, frames in outbox.logged.items()
    ]
    expected = expecting.count(graph, outbox.logged)
    if told or parts or outbox.seen:
        yield report({**told, "parts": parts, "seen": dict(outbox.seen), "expected": dict(expected)})


def settled(envelopes: DataFrame, graph: Graph, context: BatchContext, shards: int) -> Iterable[Mapping[str, Any]]:
    """Run the later stages over the envelopes of stage 0, all in one Spark job; return the reports."""
    from pyspark.sql.functions import expr

    from umbel.spark.envelopes import REPORT, SCHEMA, opened

    tasks = min(shards, envelopes.sparkSession.sparkContext.defaultParallelism)
    for stage in range(1, graph.depth + 1):
        envelopes = envelopes.repartitionById(tasks, expr(f"shard % {tasks}")).mapInArrow(
            merging(context, stage), SCHEMA
        )
    rows = envelopes.where(f"node = {REPORT}").select("blob").collect()
    return [opened(bytes(row.blob)) for row in rows]
