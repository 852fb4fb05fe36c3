"""Submission of an offline query as a job, with all checks made up front.

Errors that can be found before the job runs are reported to the client at once.
"""

from __future__ import annotations

import io
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import polars as pl

from umbel.catalog.offline_jobs import OfflineJob, OfflineJobs
from umbel.connectors.buckets import bucket_of, chosen
from umbel.connectors.s3 import S3Connector, is_chosen
from umbel.errors import InvalidValue
from umbel.graph.graph import Branch
from umbel.offline import locations
from umbel.offline.answering import looked_up
from umbel.offline.inputs import InputColumns, check_columns
from umbel.offline.outputs import part_name, part_writer_of
from umbel.offline.request import OfflineRequest, connector_of, revealed
from umbel.query.arrange import QueryPlan
from umbel.runtime.deployment import Deployment
from umbel.types.dtypes import Datetime


@dataclass(frozen=True, slots=True)
class OfflineQuery:
    """A planned offline query.

    Args:
        branch: the branch to query.
        revision: the definitions it was planned on.
        graph: the datasets of the branch.
        plan: its query plan.
        timestamp: the column of the instants.
        columns: the columns of inputs, for inputs whose column has another name.
        workflow: for metrics and the feature log.
    """

    branch: str
    revision: int
    graph: Branch
    plan: QueryPlan
    timestamp: str
    columns: Mapping[str, str]
    workflow: str


def submit(
    deployment: Deployment, question: OfflineQuery, source: Any, target: Any, rows: pl.DataFrame | None
) -> OfflineJob:
    """Check a query and store it as a job.

    Args:
        deployment: the deployment to query.
        question: the query.
        source: the input, as described by the client; None if the rows were sent with the request.
        target: the output, likewise; None for umbel's own folder.
        rows: the rows sent with the request.

    Raises:
        UmbelError: it cannot be answered: no rows, missing columns, a bucket that does not exist; or the next query on
            this input would read its answers.
    """
    request = uuid.uuid4().hex
    plan, destination = question.plan, None if target is None else locations.target_of(target)
    prefix = locations.prefix_of(destination, request)
    locations.bucket_for(deployment, destination).check(prefix)
    ending, _ = part_writer_of(locations.form_of(destination), {**plan.outputs, question.timestamp: Datetime()})
    if source is not None and destination is not None:
        _check_apart(connector_of(source, "input"), destination, f"{prefix}{part_name(0, ending)}")
    files = () if source is None else _files(deployment, question, source)
    job = OfflineJob(
        id=request,
        branch=question.branch,
        request=deployment.vault.seal(_request(question, source, target, files).encode()),
        bucket=locations.bucket_name(deployment, destination),
        prefix=prefix,
        rows=None if rows is None else _packed(rows),
    )
    OfflineJobs(deployment.catalog).add(job)
    return job


def _request(
    question: OfflineQuery, source: Any, target: Any, files: tuple[tuple[str, int, int], ...]
) -> OfflineRequest:
    return OfflineRequest(
        inputs=tuple(question.plan.inputs),
        outputs=tuple(question.plan.outputs),
        timestamp=question.timestamp,
        columns=question.columns,
        workflow=question.workflow,
        revision=question.revision,
        state_ids=looked_up(question.plan, question.graph),
        source=source,
        files=files,
        target=target,
    )


def _check_apart(source: S3Connector, target: S3Connector, part: str) -> None:
    """Refuse an output whose parts the input chooses.

    The next query would read them as rows.
    """
    if source.bucket == target.bucket and is_chosen(source, part):
        below = f"{source.prefix}{source.suffix or ''}"
        raise InvalidValue(
            f"'output': answers at '{target.prefix}' would be input of the next query, which reads '{below}' of this bucket",
            hint="name a prefix elsewhere, or below a folder like '_answers', which is not read",
        )


def _files(deployment: Deployment, question: OfflineQuery, source: Any) -> tuple[tuple[str, int, int], ...]:
    """Return the input files after checking them."""
    connector = connector_of(source, "input")
    requested = InputColumns.of(question.plan.inputs, question.columns, question.timestamp, Datetime())
    bucket = bucket_of(connector, revealed(deployment.vault))
    files = tuple(chosen(connector, bucket.listed(connector.prefix)))
    if not files:
        below = f"{connector.prefix}{connector.suffix or ''}"
        raise InvalidValue(
            f"the input is empty: bucket '{connector.bucket}' has no files at '{below}'", hint="check prefix or path"
        )
    folder = Path(mkdtemp(prefix="umbel-head-"))
    try:
        check_columns(bucket, connector.format, files, requested, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tuple((each.path, each.size, each.changed) for each in files)


def _packed(rows: pl.DataFrame) -> bytes:
    if not rows.height:
        raise InvalidValue("the input is empty: there are no rows", hint="give at least one row")
    data = io.BytesIO()
    rows.write_ipc(data)
    return data.getvalue()
