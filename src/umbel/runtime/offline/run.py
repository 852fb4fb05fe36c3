"""Working on an offline query, from where it was left to its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from umbel.catalog.offline import COMPLETED, OfflineJob, OfflineJobs
from umbel.connectors.buckets import Stored, bucket_of
from umbel.errors import InvalidValue
from umbel.query.answer import Answer
from umbel.runtime.deployment import Deployment
from umbel.runtime.offline.answering import Answering
from umbel.runtime.offline.asked import Asked, connector_of, revealed
from umbel.runtime.offline.inputs import Batch, FileInput, FrameInput, Wanted
from umbel.runtime.offline.outputs import Output, PartFile
from umbel.runtime.offline.places import output_of
from umbel.types.dtypes import Datetime

PART_ROWS = 1_000_000
"""Rows after which a part ends, with the batch that reaches them."""


class Run:
    """The work on one job.

    Args:
        deployment: where.
        job: as claimed.
        folder: for files on the way; the caller's to delete.
        part_rows: rows of a part, about.
    """

    def __init__(self, deployment: Deployment, job: OfflineJob, folder: Path, part_rows: int = PART_ROWS) -> None:
        self._deployment, self._job, self._folder, self._part_rows = deployment, job, folder, part_rows
        self._jobs = OfflineJobs(deployment.catalog)
        self._asked = Asked.decode(deployment.vault.unseal(job.asked))
        self._answering = Answering(deployment, job.branch, self._asked)
        self._wanted = Wanted.of(self._answering.plan.inputs, self._asked.columns, self._asked.timestamp, Datetime())
        self._output: Output = output_of(deployment, job, self._asked, self._answering.types, folder)
        self._taken, self._failed = job.taken, job.failed

    def finish(self) -> None:
        """Answer what is left, and end the job.

        Raises:
            UmbelError: it cannot be ended so; a `Transient` one may not come again.
        """
        position = self._job.position
        number, part = int(position.get("parts", 0)), None
        done = self._job.done
        for batch in self._batches():
            part = part or self._output.part(number)
            self._answer(batch, part)
            position, done = batch.after, batch.done
            if part.rows + part.faults >= self._part_rows:
                self._put(part, {**position, "parts": number + 1}, done)
                number, part = number + 1, None
        if part is not None:
            self._put(part, {**position, "parts": number + 1}, done)
        self._seal()

    def _batches(self) -> Iterator[Batch]:
        begin = self._job.position
        if self._job.rows is not None:
            return FrameInput(self._job.rows).batches(begin)
        source = connector_of(self._asked.source, "input")
        files = tuple(Stored(path, size) for path, size in self._asked.files)
        bucket = bucket_of(source, revealed(self._deployment.vault))
        return FileInput(bucket, source.format, files, self._wanted, self._folder).batches(begin)

    def _answer(self, batch: Batch, part: PartFile) -> None:
        self._answering.follow()
        part.refuse(batch.faults)
        self._taken += batch.frame.height + len(batch.faults)
        self._failed += len(batch.faults)
        if not batch.frame.height:
            return
        for start, _, found in self._answering.answers(*self._columns(batch.frame)):
            if isinstance(found, Answer):
                part.write(found)
            else:
                part.refuse([batch.fault(start, found.message)])
                self._failed += 1

    def _columns(self, frame: pl.DataFrame) -> tuple[dict[str, pl.Series], pl.Series]:
        if self._job.rows is not None:
            return {name: frame[name] for name in self._answering.plan.inputs}, frame[self._asked.timestamp]
        columns = {name: frame[column] for name, column in self._wanted.features.items()}
        return columns, frame[self._asked.timestamp]

    def _put(self, part: PartFile, position: dict[str, object], done: float) -> None:
        self._output.put(part)
        self._jobs.record(self._job, position=position, done=done, taken=self._taken, failed=self._failed)

    def _seal(self) -> None:
        """End the job: from the record on it cannot be cancelled, so that the marker cannot stand beside a cancelled one."""
        if not self._taken:
            raise InvalidValue("the input is empty: no file has rows", hint="name files that have some")
        self._jobs.record(self._job, is_sealed=True, taken=self._taken, failed=self._failed)
        told = {
            "request_id": self._job.id,
            "workflow": self._asked.workflow,
            "rows": self._taken - self._failed,
            "failed": self._failed,
        }
        self._output.succeed(told)
        self._jobs.end(self._job, COMPLETED)
