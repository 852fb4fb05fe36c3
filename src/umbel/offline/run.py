"""Running an offline query from its last recorded position to its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from umbel.catalog.offline_jobs import COMPLETED, OfflineJob, OfflineJobs
from umbel.connectors.buckets import Stored, bucket_of
from umbel.errors import InvalidValue
from umbel.offline.answering import Answering
from umbel.offline.inputs import FileInput, FrameInput, InputBatch, InputColumns
from umbel.offline.locations import output_of
from umbel.offline.outputs import Output, PartFile
from umbel.offline.request import OfflineRequest, connector_of, revealed
from umbel.query.answer import Answer
from umbel.runtime.deployment import Deployment
from umbel.types.dtypes import Datetime

PART_ROWS = 1_000_000
"""Rows after which a part ends, at the end of the batch."""


class Run:
    """The execution of one job.

    Args:
        deployment: the deployment to query.
        job: as claimed.
        folder: for temporary files; the caller deletes it.
        part_rows: the approximate number of rows of a part.
    """

    def __init__(self, deployment: Deployment, job: OfflineJob, folder: Path, part_rows: int = PART_ROWS) -> None:
        self._deployment, self._job, self._folder, self._part_rows = deployment, job, folder, part_rows
        self._jobs = OfflineJobs(deployment.catalog)
        self._request = OfflineRequest.decode(deployment.vault.unseal(job.request))
        self._answering = Answering(deployment, job.branch, self._request)
        self._requested = InputColumns.of(
            self._answering.plan.inputs, self._request.columns, self._request.timestamp, Datetime()
        )
        self._output: Output = output_of(deployment, job, self._request, self._answering.types, folder)
        self._taken, self._failed = job.taken, job.failed

    def finish(self) -> None:
        """Answer the remaining rows, and complete the job.

        Raises:
            UmbelError: it cannot be completed; a `Transient` error may go away on a retry.
        """
        position = self._job.position
        number, part = int(position.get("parts", 0)), None
        done = self._job.done
        for batch in self._batches():
            part = part or self._output.part(number)
            self._answer(batch, part)
            position, done = batch.after, batch.done
            if part.rows + part.rejected >= self._part_rows:
                self._put(part, {**position, "parts": number + 1}, done)
                number, part = number + 1, None
        if part is not None:
            self._put(part, {**position, "parts": number + 1}, done)
        self._seal()

    def _batches(self) -> Iterator[InputBatch]:
        begin = self._job.position
        if self._job.rows is not None:
            return FrameInput(self._job.rows).batches(begin)
        source = connector_of(self._request.source, "input")
        files = tuple(Stored(path, size) for path, size in self._request.files)
        bucket = bucket_of(source, revealed(self._deployment.vault))
        return FileInput(bucket, source.format, files, self._requested, self._folder).batches(begin)

    def _answer(self, batch: InputBatch, part: PartFile) -> None:
        self._answering.follow()
        part.refuse(batch.rejected)
        self._taken += batch.frame.height + len(batch.rejected)
        self._failed += len(batch.rejected)
        if not batch.frame.height:
            return
        for start, _, found in self._answering.answers(*self._columns(batch.frame)):
            if isinstance(found, Answer):
                part.write(found)
            else:
                part.refuse([batch.rejected_row(start, found.message)])
                self._failed += 1

    def _columns(self, frame: pl.DataFrame) -> tuple[dict[str, pl.Series], pl.Series]:
        if self._job.rows is not None:
            return {name: frame[name] for name in self._answering.plan.inputs}, frame[self._request.timestamp]
        columns = {name: frame[column] for name, column in self._requested.features.items()}
        return columns, frame[self._request.timestamp]

    def _put(self, part: PartFile, position: dict[str, object], done: float) -> None:
        self._output.put(part)
        self._jobs.record(self._job, position=position, done=done, taken=self._taken, failed=self._failed)

    def _seal(self) -> None:
        """Record the end of the job; from then on it cannot be cancelled.

        So the marker cannot exist beside a cancelled job.
        """
        if not self._taken:
            raise InvalidValue("the input is empty: no file has rows", hint="name files that have some")
        self._jobs.record(self._job, is_sealed=True, taken=self._taken, failed=self._failed)
        report = {
            "request_id": self._job.id,
            "workflow": self._request.workflow,
            "rows": self._taken - self._failed,
            "failed": self._failed,
        }
        self._output.succeed(report)
        self._jobs.end(self._job, COMPLETED)
