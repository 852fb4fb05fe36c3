"""The stages of a batch inside Spark's Python workers, connected by packets.

The functions made here are sent to the workers with nothing but a `BatchContext`; graph, store and sources are opened there, once
per process. Side effects outside shard transactions are harmless if a stage is computed twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umbel.isolation.function_limits import FunctionLimits
from umbel.operators.operator import Clock
from umbel.spark.priority import mapped, take_priority
from umbel.state.port import Stamp

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from umbel.graph.graph import Graph
    from umbel.graph.stages import StageOutput
    from umbel.runtime.deployment import Deployment
    from umbel.runtime.guard import WorkerGuard

Task = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The parameters of a batch that its tasks need.

    Args:
        deployment: the deployment, as JSON.
        revision: the commit whose definitions apply.
        stamp: of the batch.
        clocks: event time as of the batch before, by node number.
        watermarks: of each source as of the batch before, by its key.
        only: the state ids of the nodes that run; None for all.
        limits: of user functions, as the driver's environment sets them.
        waiting: the state ids of the nodes that are left out of the graph.
        tasks: how many tasks a stage after stage 0 has; task `t` has the shards that leave the remainder `t`.
        folder: the driver's working directory; functions import modules from it where it exists.
        yields: whether its tasks let everything else on their machine go first.
    """

    deployment: str = field(repr=False)
    revision: int
    stamp: Stamp
    clocks: Mapping[int, Clock] = field(default_factory=dict)
    watermarks: Mapping[str, datetime] = field(default_factory=dict)
    only: frozenset[str] | None = None
    limits: FunctionLimits = field(default_factory=FunctionLimits.from_environment)
    waiting: frozenset[str] = frozenset()
    tasks: int = 1
    folder: str = field(default_factory=os.getcwd)
    yields: bool = False

    @classmethod
    def of(
        cls, deployment: Deployment, session: SparkSession, revision: int, stamp: Stamp, **others: Any
    ) -> BatchContext:
        """Return the parameters of a batch for tasks of a session."""
        tasks = min(deployment.shards, session.sparkContext.defaultParallelism)
        return cls(encoded(deployment, session), revision, stamp, tasks=tasks, **others)

    def opened(self) -> Deployment:
        """Return the deployment, opened once per process."""
        take_priority()
        return opened(self.deployment, self.folder)

    def graph(self) -> Graph:
        """Return the graph of the nodes that run or can be read."""
        return self.opened().graph(self.revision, self.waiting)


def encoded(deployment: Deployment, session: SparkSession) -> str:
    """Return a deployment as JSON for tasks of a session."""
    return deployment.encode(for_others=not is_local(session))


def is_local(session: SparkSession) -> bool:
    """Return True if tasks run on this machine, in processes that have this one's environment."""
    return (session.conf.get("spark.master") or "").startswith("local")


def opened(deployment: str, folder: str) -> Deployment:
    """Return a deployment in a task, opened once per process.

    Args:
        deployment: as JSON.
        folder: the driver's working directory.
    """
    from umbel.api.secrets import provide_secrets
    from umbel.runtime.deployment import Deployment

    _with_folder(folder)
    found = Deployment.decode(deployment)
    provide_secrets(found.vault)
    return found


@cache
def _with_folder(folder: str) -> None:
    """Add the driver's working directory to the import path, once per process.

    Functions may import modules from it while they run.
    """
    from umbel.processes.user_folder import importable

    importable(Path(folder))


def reading(context: BatchContext, plan: int) -> Task:
    """Return stage 0: open splits, validate their rows, run row-wise operators.

    The groups of splits of the plan arrive as numbers.
    """

    def run(arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from umbel.graph.stages import add_seen
        from umbel.runtime.guard import WorkerGuard
        from umbel.runtime.intake import groups_of, take_in
        from umbel.runtime.postponing import answered
        from umbel.spark.packets import announced, batches

        deployment, seen = context.opened(), dict[int, datetime]()
        planned = deployment.plans().read(plan)
        groups = groups_of(deployment, planned)
        for batch in arrived:
            for number in batch.column(0).to_pylist():
                guard = WorkerGuard(deployment, context.limits)
                group = groups[number]
                read = take_in(deployment, planned, group, context.watermarks, guard, context.waiting)
                for taken in answered(deployment, planned.revision, group[0], read):
                    summary = {"intake": taken.summary}
                    add_seen(seen, taken.output.seen)
                    yield from batches(posted(deployment, context, taken.output, summary, f"0-{taken.name}"))
                yield from batches(rejected(guard))
        yield from batches(announced(seen, context.tasks))

    return run


def merging(context: BatchContext, stage: int) -> Task:
    """Return a later stage: one transaction per shard, over its packets and due timers."""

    def run(arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from umbel.functions.guarding import guarded
        from umbel.graph.stages import StageOutput, add_seen, define_folded, due, run_shard
        from umbel.runtime.guard import WorkerGuard
        from umbel.spark.packets import StageInput, announced, batches
        from umbel.state.port import Lasting

        deployment = context.opened()
        graph, store = context.graph(), deployment.store
        nodes = graph.stage(stage, context.only)
        inputs = StageInput.sort(arrived, {node.number for node in nodes})
        yield from batches(inputs.onward)
        seen, fired, task = inputs.seen, due(nodes, inputs.seen, context.clocks), TaskContext.get()
        assert task is not None
        for shard in range(task.partitionId(), deployment.shards, context.tasks) if fired else sorted(inputs.blobs):
            output, inbox, guard = StageOutput(), inputs.open(shard), WorkerGuard(deployment, context.limits)
            state_ids = [node.state_id for node in nodes]
            with guarded(guard), store.transaction(shard, state_ids, context.stamp) as transaction:
                define_folded(graph.nodes, transaction)
                run_shard(nodes, inbox, transaction, context.clocks, output, fired)
            yield from batches(rejected(guard))
            del inputs.blobs[shard], inbox
            add_seen(seen, output.seen)
            ends = {"ends": {shard: store.end(shard)}} if isinstance(store, Lasting) else {}
            yield from batches(posted(deployment, context, output, ends, f"{stage}-{shard}"))
        yield from batches(announced(seen, context.tasks))

    return run


def posted(
    deployment: Deployment, context: BatchContext, output: StageOutput, summary: Mapping[str, Any], name: str
) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield the packets of a stage output: its changes, then a report."""
    from umbel.quality import totals
    from umbel.spark.packets import address, report

    graph = context.graph()
    yield from address(graph, output, deployment.shards)
    parts = [
        deployment.changes.write_part(graph.nodes[number], context.stamp, name, frames)
        for number, frames in output.logged.items()
    ]
    expected = totals.count(graph, output.logged)
    if summary or parts or output.seen or output.moved or output.made:
        found = {"parts": parts, "seen": dict(output.seen), "moved": dict(output.moved), "made": dict(output.made)}
        yield report({**summary, **found, "expected": dict(expected)})


def rejected(guard: WorkerGuard) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield a report of the rows that user functions rejected, if any."""
    from umbel.runtime.letters import Letters
    from umbel.spark.packets import report

    if found := Letters.of(guard):
        yield report({"letters": found, "parts": (), "seen": {}})


def later_stages(packets: DataFrame, graph: Graph, context: BatchContext) -> Iterable[Mapping[str, Any]]:
    """Run the later stages over stage 0's packets in one Spark job; return reports.

    Args:
        packets: of stage 0.
        graph: of the batch.
        context: of the batch.
    """
    from pyspark.sql.functions import expr

    from umbel.spark.packets import REPORT, opened

    tasks = context.tasks
    for stage in range(1, graph.depth + 1):
        divided = packets.repartitionById(tasks, expr(f"shard % {tasks}"))
        packets = mapped(divided, merging(context, stage), yields=context.yields)
    rows = packets.where(f"node = {REPORT}").select("blob").collect()
    return [opened(bytes(row.blob)) for row in rows]
