"""The live job: one streaming query over the whole graph, one Spark job per micro-batch.

Spark numbers the batches, and repeats one that has not finished. What a batch reads is in its plan: the source of the query,
Spark's own `rate-micro-batch`, has one row in each, which nobody reads, and a batch waits until there is something to plan.

A batch too small to gain from Spark tasks is run by the driver itself, by the same stages in the same shard transactions; on few
cores a larger one as well, in threads. Both write change logs in the same form, so a batch may be run again in the other way.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

from pyspark.errors import PySparkException

from umbel.catalog.catalog import JobEpoch
from umbel.catalog.purges import Purges
from umbel.errors import text_of
from umbel.graph import threads
from umbel.runtime import postponing, retries
from umbel.runtime.batch import TAILED, BatchReport, Counts, MicroBatch
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.intake import groups_of
from umbel.runtime.maintenance import Maintenance
from umbel.runtime.planner import JobStopped, Planner, PlanningFailed
from umbel.runtime.postponing import SourceAway
from umbel.runtime.purge import purge_before
from umbel.runtime.rates import SOURCES, record
from umbel.runtime.recovery import checkpoint
from umbel.runtime.reporting import report_event
from umbel.runtime.state_claim import claim_state
from umbel.runtime.unlogged import recompute_unlogged
from umbel.spark.backfill import Backfill
from umbel.spark.executors import ExecutorWatch
from umbel.spark.pace import Pace
from umbel.spark.priority import mapped
from umbel.spark.tasks import BatchContext, is_local, later_stages, reading
from umbel.state.port import Stamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SMALL = TAILED
"""Batches of at most so many bytes of input are run by the driver."""
THREADED = 256 << 20
"""On few cores those of at most so many are, in threads: that is faster there than Spark's tasks, and takes less memory."""
MOST_SLOTS = 2
ONE_A_BATCH = {"rowsPerBatch": 1, "startTimestamp": 0, "advanceMillisPerBatch": 0}
"""Options of the query's source: its offset is the number of the plan."""


class LiveJob:
    """The streaming job of a deployment.

    Args:
        deployment: the deployment.
        session: Spark.
        small: bytes of input up to which a batch is run by the driver itself; the best for this machine when None.
        on_batch: called after each batch with its number and counts.
        on_begin: called before each batch with its number.
        planner: plans the batches; a new one when None.
    """

    def __init__(
        self,
        deployment: Deployment,
        session: SparkSession,
        *,
        small: int | None = None,
        on_batch: Callable[[int, Counts], None] | None = None,
        on_begin: Callable[[int], None] = lambda _: None,
        planner: Planner | None = None,
    ) -> None:
        self._deployment, self._session = deployment, session
        self._small = SMALL if small is None else small
        slots = session.sparkContext.defaultParallelism
        is_threaded = small is None and slots <= MOST_SLOTS and is_local(session)
        self._threaded = THREADED if is_threaded else self._small
        self._plans, self._planner = deployment.plans(), planner or Planner(deployment)
        self._checkpoint = checkpoint.folder_of(deployment.directory)
        self._on_batch, self._on_begin = on_batch, on_begin
        self._maintenance = Maintenance(deployment)
        self._pace = Pace(self._small)
        self._backfill = Backfill(session, deployment, self._pace, is_threaded=is_threaded)
        self._watch = ExecutorWatch(session, partial(deployment.catalog.record_event, "work", "warning"))
        self._epoch = self._existing = self._ahead = 0
        self._has_claimed = self._is_closed = False
        self._query: StreamingQuery | None = None

    def start(self) -> StreamingQuery:
        """Take over the job from an earlier worker, and start it."""
        if is_local(self._session):
            threads.use(self._session.sparkContext.defaultParallelism)
        self._epoch = self._deployment.catalog.take_over(JOB)
        self._existing = self._plans.last()
        parts = self._deployment.catalog, self._deployment.directory
        if older := checkpoint.is_catalog_older(*parts):
            text = f"the catalog may be an older copy: {older}; commits and erasures since then are not known"
            report_event(self._deployment.catalog, text)
        if loss := checkpoint.loss(*parts):
            text = f"{loss}; it was written again, after batch {checkpoint.write(*parts)}"
            report_event(self._deployment.catalog, text)
        checkpoint.discard_unbegun(*parts)
        last = self._deployment.catalog.progress(JOB, sys.maxsize)
        self._ahead = last.state["plan"] - last.number if last else 1
        self._planner.start()
        logging.getLogger("py4j.clientserver").addFilter(_is_no_stop)
        self._watch.start()
        numbers = self._session.readStream.format("rate-micro-batch").options(**ONE_A_BATCH).load()
        writer = numbers.writeStream.foreachBatch(self._batch).queryName(JOB)
        writer = writer.option("checkpointLocation", str(self._checkpoint)).trigger(processingTime="0 seconds")
        self._query = writer.start()
        return self._query

    def close(self) -> None:
        """Cancel what runs beside the streaming query, after it was stopped."""
        threads.use(threads.AVAILABLE)
        if self._query is not None and self._query.exception() is None:
            retries.excuse(self._deployment.catalog, self._epoch)
        self._is_closed = True
        self._planner.close()
        self._watch.stop()
        self._backfill.stop()

    def _batch(self, _: DataFrame, number: int) -> None:
        planned = self._planned(number)
        with retries.excusing(self._deployment.catalog, self._epoch), _panics_reported():
            self._run_batch(number, planned)

    def _planned(self, number: int) -> int:
        """Wait for the plan of a batch; return its number.

        Raises:
            PlanningFailed: it cannot be made.
            JobStopped: it is not needed. Spark would take the batch for a finished one if this returned.
        """
        expected = number + self._ahead
        try:
            planned = self._planner.plan_after(expected - 1, self._is_active)
        except PlanningFailed:
            retries.excuse(self._deployment.catalog, self._epoch)
            raise
        if planned is None:
            self._interrupt()
        if planned != expected:
            raise PlanningFailed(f"plan {planned} follows {expected - 1}")
        return planned

    def _interrupt(self) -> NoReturn:
        """End a batch that waits for its plan.

        A query that is stopped by its own thread interrupts it: Spark takes that for the stop that it is, and any other exception
        for an error, which it would log.

        Raises:
            JobStopped: always.
        """
        try:
            if self._query is not None:
                self._query.stop()
        except Exception as error:  # py4j's, with Java's InterruptedException: Spark finds it in the traceback
            raise JobStopped("the job is stopped") from error
        raise JobStopped("the job is stopped")

    def _is_active(self) -> bool:
        return not self._is_closed and (self._query is None or self._query.isActive)

    def _run_batch(self, number: int, planned: int) -> None:
        self._on_begin(number)
        plan = self._plans.read(planned)
        by = JobEpoch(JOB, self._epoch)
        if not self._has_claimed:
            claim_state(self._deployment, self._epoch)
            self._has_claimed = True
        if Purges(self._deployment.catalog).is_due():
            self._deployment.catalog.check_epoch(by)
            self._maintenance.wait()  # it merges files of change logs
            purge_before(self._deployment, plan.revision, number, is_backfilling=self._backfill.is_running)
        batch = MicroBatch.begin(self._deployment, plan, Stamp(self._epoch, number))
        if batch.before is not None and batch.before != plan.revision:
            recompute_unlogged(self._deployment, batch.before, plan.revision, batch.dues, by)
        batch.forget_removed()
        self._pace.before(plan.size)
        waiting = self._backfill.go_on(plan.revision, batch.stamp, batch.time, batch.before is None)
        is_new = planned > self._existing
        batch = retries.smaller(batch.after_backfill(waiting), is_new=is_new)
        reads = monotonic()
        batch, batch_report = postponing.run(batch, self._ran, is_new=is_new)
        plan = batch.plan
        counts = batch.finish(batch_report)
        if plan.behind:  # rows that were there before
            rows = sum(count for (_, name), count in counts.items() if name == "rows")
            record(self._deployment.catalog, SOURCES, rows, monotonic() - reads)
        self._maintenance.after(plan)
        if self._on_batch is not None:
            self._on_batch(number, counts)

    def _ran(self, batch: MicroBatch) -> BatchReport:
        """Run the stages of a batch where it is faster."""
        return batch.run_here() if self._is_for_driver(batch) else self._in_tasks(batch)

    def _is_for_driver(self, batch: MicroBatch) -> bool:
        """Return whether the driver runs a batch itself.

        That is a small one, and on few cores any that it can read in threads.
        """
        size = batch.plan.size
        return size <= self._small or (size <= self._threaded and batch.opens_at_once)

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
        batch_report, slots = BatchReport(), self._session.sparkContext.defaultParallelism
        groups = len(groups_of(batch.deployment, batch.plan))
        numbers = self._session.range(0, groups, numPartitions=min(groups, slots))
        stage = reading(context, batch.plan.number)
        try:
            reports = later_stages(mapped(numbers, stage, yields=False), graph, context)
        except PySparkException as error:
            away = SourceAway.of_text(str(error)) if is_local(self._session) else None
            if away is None:  # on a cluster it may be read again for a stage that has begun to write
                raise
            raise away from error
        for report in reports:
            batch_report.add(report)
        return batch_report


def _is_no_stop(record: logging.LogRecord) -> bool:
    """Return False for reports of batches that a stop has ended."""
    return not record.exc_info or not isinstance(record.exc_info[1], JobStopped)


@contextmanager
def _panics_reported() -> Iterator[None]:
    """Raise a panic of Polars as an error.

    It would end the thread that answers Spark, which waits for ever.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"{type(error).__name__}: {text_of(error)}") from error
