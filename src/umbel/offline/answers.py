"""Answers to the parts of one offline query, in any process that has the deployment."""

from __future__ import annotations

from functools import lru_cache

import polars as pl

from umbel.catalog.engine import AWAY
from umbel.catalog.offline_jobs import OfflineJob, OfflineJobs
from umbel.connectors.buckets import Stored, bucket_of
from umbel.errors import Terminal, Transient, UmbelError
from umbel.offline.answering import Answering
from umbel.offline.inputs import FileInput, FrameInput, Input, InputBatch, InputColumns
from umbel.offline.locations import output_of, own_folder
from umbel.offline.outputs import PartFile
from umbel.offline.parts import InputPart, PartReport, decoded
from umbel.offline.request import OfflineRequest, connector_of, revealed
from umbel.query.answer import Answer
from umbel.runtime.deployment import Deployment
from umbel.state.passwords import redacted
from umbel.types.dtypes import Datetime


class JobAnswers:
    """The answers to a job: reads parts of its input, answers and writes them.

    Args:
        deployment: the deployment to query.
        request: the id of the job.

    Raises:
        Terminal: the job has ended.
    """

    def __init__(self, deployment: Deployment, request: str) -> None:
        job = OfflineJobs(deployment.catalog).get(request)
        if not job.is_open:
            raise Terminal(f"offline query {request}: it has ended")
        self._deployment, self._id = deployment, request
        self._request = request_of(deployment, job)
        self._answering = Answering(deployment, job.branch, self._request)
        plan, names = self._answering.plan, self._request
        self._requested = InputColumns.of(plan.inputs, names.columns, names.timestamp, Datetime())
        self._output = output_of(deployment, job.prefix, self._request)
        self._input: Input = self._files() if job.rows is None else FrameInput(job.rows)

    def _files(self) -> FileInput:
        source = connector_of(self._request.source, "input")
        files = tuple(Stored(*each) for each in self._request.files)
        bucket = bucket_of(source, revealed(self._deployment.vault))
        return FileInput(bucket, source.format, files, self._requested)

    def parts(self) -> list[InputPart]:
        """Return the parts of the input."""
        return self._input.parts()

    def clear(self) -> None:
        """Delete what an earlier plan of parts has written."""
        self._output.clear()

    def answer(self, part: InputPart) -> PartReport:
        """Answer a part and write it, under a name that depends on its number alone.

        Raises:
            UmbelError: it cannot be answered; a `Transient` error may go away on a retry.
        """
        taken = failed = 0
        with own_folder(self._deployment, self._id) as folder:
            file = self._output.part(part.number, folder, self._answering.types)
            for batch in self._input.batches(part):
                taken += batch.frame.height + len(batch.rejected)
                failed += self._answer(batch, file)
            self._output.put(file)
        return PartReport(part.number, taken, failed)

    def _answer(self, batch: InputBatch, file: PartFile) -> int:
        """Write the answers to a batch; return the number of rows without one."""
        self._answering.follow()
        file.refuse(batch.rejected)
        failed = len(batch.rejected)
        if not batch.frame.height:
            return failed
        for start, _, found in self._answering.answers(*self._columns(batch.frame)):
            if isinstance(found, Answer):
                file.write(found)
            else:
                file.refuse([batch.rejected_row(start, found.message)])
                failed += 1
        return failed

    def _columns(self, frame: pl.DataFrame) -> tuple[dict[str, pl.Series], pl.Series]:
        columns = {name: frame[column] for name, column in self._requested.features.items()}
        return columns, frame[self._request.timestamp]


def request_of(deployment: Deployment, job: OfflineJob) -> OfflineRequest:
    """Return the request of an open job."""
    return OfflineRequest.decode(deployment.vault.unseal(job.request))


def succeed(deployment: Deployment, job: OfflineJob) -> None:
    """Delete what attempts that were killed have left, and write the marker.

    Neither the input nor the datasets that were looked up are needed any more.

    Args:
        deployment: the deployment that was queried.
        job: the job, sealed.
    """
    request = request_of(deployment, job)
    output = output_of(deployment, job.prefix, request)
    output.retain(decoded(job.parts["answered"]))
    rows = {"rows": job.taken - job.failed, "failed": job.failed}
    output.succeed({"request_id": job.id, "workflow": request.workflow, **rows})


@lru_cache(maxsize=1)
def answers_of(deployment: Deployment, request: str) -> JobAnswers:
    """Return the answers to a job, the same for all parts that a process answers."""
    return JobAnswers(deployment, request)


def answer_part(deployment: Deployment, request: str, part: InputPart) -> PartReport:
    """Answer a part of a job; this is all that tasks do.

    Errors that a retry would meet again are reported, others raised.

    Args:
        deployment: the deployment to query.
        request: the id of the job.
        part: the part.
    """
    try:
        return answers_of(deployment, request).answer(part)
    except Exception as error:  # noqa: BLE001  the job fails with it, whatever it is, if a retry would meet it again
        if may_go_away(error):
            raise Transient(described(error)) from None  # Spark writes it to its logs
        return PartReport(part.number, error=described(error))


def may_go_away(error: Exception) -> bool:
    """Return True for an error of a disk, a network or the catalog.

    Errors of umbel itself say whether they are transient, also those that are an `OSError`: a `TimeoutError` of an extractor.
    """
    if isinstance(error, UmbelError):
        return isinstance(error, Transient)
    return isinstance(error, (OSError, *AWAY))


def described(error: BaseException) -> str:
    """Return the text of an error, without passwords."""
    text = error.described() if isinstance(error, UmbelError) else f"{type(error).__name__}: {error}"
    return f"{redacted(text):.2000}"
