"""The live job: one streaming query that runs the whole graph, one Spark job per micro-batch.

A batch too small to be worth Spark tasks is run by the driver itself, by the same stages in the same shard transactions; which
of the two it is depends on its plan alone, so a batch that is run again is run in the same way.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from umbel.runtime.batch import Batch, Counts, Told
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.upkeep import Upkeep
from umbel.spark.backfill import Backfill
from umbel.spark.envelopes import SCHEMA
from umbel.spark.source import NAME, PlanSource
from umbel.spark.tasks import BatchContext, reading, settled
from umbel.state.port import Stamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SMALL = 2 << 20
"""Batches of at most so many bytes of input are run by the driver."""
INTERVAL = "100 milliseconds"

log = logging.getLogger("umbel.work")


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
        on_batch: Callable[[int, Counts], None] | None = None,
    ) -> None:
        self._deployment, self._session, self._small = deployment, session, small
        self._plans = deployment.plans()
        self._checkpoint = deployment.directory / "checkpoint" / JOB
        self._on_batch = on_batch
        self._upkeep = Upkeep(deployment)
        self._epoch = 0

    def start(self) -> StreamingQuery:
        """Take the job over and start it."""
        self._epoch = self._deployment.catalog.take_over(JOB)
        self._session.dataSource.register(PlanSource)
        plans = self._session.readStream.format(NAME).option("deployment", self._deployment.encode()).load()
        writer = plans.writeStream.foreachBatch(self._batch).queryName(JOB)
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(processingTime=INTERVAL).start()

    def _batch(self, _: DataFrame, number: int) -> None:
        planned = self._planned(number)
        if not planned:  # Spark begins a job that finds nothing new with a batch up to the offset before the first plan
            return
        plan = self._plans.read(planned)
        batch = Batch.begin(self._deployment, plan, Stamp(self._epoch, number))
        batch.forget_removed()
        backfill = Backfill(self._session, self._deployment, batch.graph, plan.revision, batch.stamp)
        backfill.attach(batch.time, is_first=batch.before is None)
        told = batch.run_here() if plan.size <= self._small else self._in_tasks(batch)
        counts = batch.finish(told)
        self._upkeep.after(plan)
        if self._on_batch is not None:
            self._on_batch(number, counts)

    def _in_tasks(self, batch: Batch) -> Told:
        """Run a batch as one Spark job of a stage per depth of the graph."""
        graph, time = batch.graph, batch.time
        watermarks = time.watermarks(graph)
        deployment = self._deployment
        context = BatchContext(deployment.encode(), batch.plan.revision, batch.stamp, time.clocks(graph), watermarks)
        told, splits, slots = Told(), len(batch.plan.splits), self._session.sparkContext.defaultParallelism
        numbers = self._session.range(0, splits, numPartitions=min(splits, slots))
        stage = reading(context, batch.plan.number)
        for report in settled(numbers.mapInArrow(stage, SCHEMA), graph, context, deployment.shards):
            told.heard(report)
        return told

    def _planned(self, number: int) -> int:
        """Return the plan of a batch, from what Spark wrote down before it began."""
        lines = Path(self._checkpoint, "offsets", str(number)).read_text().strip().splitlines()
        return int(json.loads(lines[-1])["plan"])
