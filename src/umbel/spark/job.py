"""The live job: one streaming query over the whole graph, one Spark job per micro-batch.

A batch too small to gain from Spark tasks is run by the driver itself, by the same stages in the same shard transactions. The
choice depends on the batch's plan alone, so a batch that is run again is run in the same way.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from umbel.catalog.catalog import JobEpoch
from umbel.catalog.purges import Purges
from umbel.errors import text_of
from umbel.runtime.batch import BatchReport, Counts, MicroBatch
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.maintenance import Maintenance
from umbel.runtime.purge import purge_before
from umbel.runtime.rates import SOURCES, record
from umbel.runtime.recovery import checkpoint
from umbel.runtime.unlogged import recompute_unlogged
from umbel.spark.backfill import Backfill
from umbel.spark.pace import Pace
from umbel.spark.packets import SCHEMA
from umbel.spark.source import NAME, PlanSource
from umbel.spark.tasks import BatchContext, later_stages, reading
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
        deployment: the deployment.
        session: Spark.
        small: bytes of input up to which a batch is run by the driver itself.
        on_batch: called after each batch with its number and counts.
        on_begin: called before each batch with its number.
    """

    def __init__(
        self,
        deployment: Deployment,
        session: SparkSession,
        *,
        small: int = SMALL,
        on_batch: Callable[[int, Counts], None] | None = None,
        on_begin: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._deployment, self._session, self._small = deployment, session, small
        self._plans = deployment.plans()
        self._checkpoint = checkpoint.folder_of(deployment.directory)
        self._on_batch, self._on_begin = on_batch, on_begin
        self._maintenance = Maintenance(deployment)
        self._pace = Pace(small)
        self._backfill = Backfill(session, deployment, self._pace)
        self._epoch = 0

    def start(self) -> StreamingQuery:
        """Take over the job from an earlier worker, and start it."""
        self._epoch = self._deployment.catalog.take_over(JOB)
        parts = self._deployment.catalog, self._deployment.directory
        if checkpoint.is_lost(*parts):
            text = f"the checkpoint is missing; it was written again, after batch {checkpoint.write(*parts)}"
            log.warning(text)
            self._deployment.catalog.record_event("work", "warning", text)
        self._session.dataSource.register(PlanSource)
        plans = self._session.readStream.format(NAME).option("deployment", self._deployment.encode()).load()
        writer = plans.writeStream.foreachBatch(self._batch).queryName(JOB)
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(processingTime=INTERVAL).start()

    def close(self) -> None:
        """Cancel what runs beside the streaming query, after it was stopped."""
        self._backfill.stop()

    def _batch(self, _: DataFrame, number: int) -> None:
        try:
            self._run_batch(number)
        except Exception:
            raise
        except (
            BaseException
        ) as error:  # a panic of Polars: it would end the thread that answers Spark, which waits for ever
            raise RuntimeError(f"{type(error).__name__}: {text_of(error)}") from error

    def _run_batch(self, number: int) -> None:
        planned = self._planned(number)
        if not planned:  # Spark begins a job that finds nothing new with a batch up to the offset before the first plan
            return
        self._on_begin(number)
        plan = self._plans.read(planned)
        by = JobEpoch(JOB, self._epoch)
        if Purges(self._deployment.catalog).is_due():
            self._deployment.catalog.check_epoch(by)
            self._maintenance.wait()  # it merges files of change logs
            purge_before(self._deployment, plan.revision, number, is_backfilling=self._backfill.is_running)
        batch = MicroBatch.begin(self._deployment, plan, Stamp(self._epoch, number))
        if batch.before not in (None, plan.revision):
            self._backfill.wait()
            recompute_unlogged(self._deployment, plan.revision, batch.dues, by)
        batch.forget_removed()
        self._pace.before(plan.size)
        waiting = self._backfill.go_on(plan.revision, batch.stamp, batch.time, batch.before is None)
        batch = batch.after_backfill(waiting)
        reads = monotonic()
        batch_report = batch.run_here() if plan.size <= self._small else self._in_tasks(batch)
        counts = batch.finish(batch_report)
        if plan.behind:  # rows that were there before
            rows = sum(count for (_, name), count in counts.items() if name == "rows")
            record(self._deployment.catalog, SOURCES, rows, monotonic() - reads)
        self._maintenance.after(plan)
        if self._on_batch is not None:
            self._on_batch(number, counts)

    def _in_tasks(self, batch: MicroBatch) -> BatchReport:
        """Run a batch as one Spark job with a stage for each graph stage."""
        graph, time = batch.graph, batch.time
        watermarks = time.watermarks(graph)
        deployment = self._deployment
        clocks, revision = time.clocks(graph), batch.plan.revision
        context = BatchContext.of(
            deployment,
            self._session,
            revision,
            batch.stamp,
            clocks=clocks,
            watermarks=watermarks,
            waiting=batch.waiting,
        )
        batch_report, splits, slots = (
            BatchReport(),
            len(batch.plan.splits),
            self._session.sparkContext.defaultParallelism,
        )
        numbers = self._session.range(0, splits, numPartitions=min(splits, slots))
        stage = reading(context, batch.plan.number)
        for report in later_stages(numbers.mapInArrow(stage, SCHEMA), graph, context):
            batch_report.add(report)
        return batch_report

    def _planned(self, number: int) -> int:
        """Read a batch's plan number from Spark's offset log."""
        lines = Path(self._checkpoint, "offsets", str(number)).read_text().strip().splitlines()
        return int(json.loads(lines[-1])["plan"])
