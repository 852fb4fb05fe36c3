"""Submitting an offline query that runs as a job: what can be refused is refused here, before anybody waits for it."""

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

from umbel.catalog.offline import OfflineJob, OfflineJobs
from umbel.connectors.buckets import bucket_of, chosen
from umbel.errors import InvalidValue
from umbel.plan.graph import Branch
from umbel.query.arrange import Plan
from umbel.runtime.deployment import Deployment
from umbel.runtime.offline import places
from umbel.runtime.offline.answering import looked_up
from umbel.runtime.offline.asked import Asked, connector_of, revealed
from umbel.runtime.offline.inputs import Wanted, check_columns
from umbel.runtime.offline.outputs import sheet_of
from umbel.types.dtypes import Datetime


@dataclass(frozen=True, slots=True)
class Question:
    """An offline query as it was planned.

    Args:
        branch: whose features.
        revision: the definitions it was planned on.
        graph: the datasets of the branch.
        plan: how it is answered.
        timestamp: the column of the instants.
        columns: for inputs the columns that hold them, where they are named otherwise.
        workflow: what it is for.
    """

    branch: str
    revision: int
    graph: Branch
    plan: Plan
    timestamp: str
    columns: Mapping[str, str]
    workflow: str


def submit(
    deployment: Deployment, question: Question, source: Any, target: Any, rows: pl.DataFrame | None
) -> OfflineJob:
    """Check a query and keep it as a job.

    Args:
        deployment: where.
        question: the query.
        source: where its input is, as the client described it; None where rows came along.
        target: where its answer shall go, likewise; None for umbel's own folder.
        rows: the input that came along.

    Raises:
        UmbelError: it cannot be answered: no rows, missing columns, a bucket that is not there.
    """
    request = uuid.uuid4().hex
    plan, destination = question.plan, None if target is None else places.target_of(target)
    if not plan.inputs:
        raise InvalidValue("an offline query needs inputs", hint="name the features that are given")
    prefix = places.prefix_of(destination, request)
    places.bucket_for(deployment, destination).check(prefix)
    sheet_of(places.form_of(destination), {**plan.outputs, question.timestamp: Datetime()})
    files = () if source is None else _files(deployment, question, source)
    job = OfflineJob(
        id=request,
        branch=question.branch,
        asked=deployment.vault.seal(_asked(question, source, target, files).encode()),
        bucket=places.bucket_name(deployment, destination),
        prefix=prefix,
        rows=None if rows is None else _packed(rows),
    )
    OfflineJobs(deployment.catalog).add(job)
    return job


def _asked(question: Question, source: Any, target: Any, files: tuple[tuple[str, int], ...]) -> Asked:
    return Asked(
        inputs=tuple(question.plan.inputs),
        outputs=tuple(question.plan.outputs),
        timestamp=question.timestamp,
        columns=question.columns,
        workflow=question.workflow,
        revision=question.revision,
        owners=looked_up(question.plan, question.graph),
        source=source,
        files=files,
        target=target,
    )


def _files(deployment: Deployment, question: Question, source: Any) -> tuple[tuple[str, int], ...]:
    """Return the files of the input, once they have been found fit."""
    connector = connector_of(source, "input")
    wanted = Wanted.of(question.plan.inputs, question.columns, question.timestamp, Datetime())
    bucket = bucket_of(connector, revealed(deployment.vault))
    files = tuple(chosen(connector, bucket.listed(connector.prefix)))
    if not files:
        below = f"{connector.prefix}{connector.suffix or ''}"
        raise InvalidValue(
            f"the input is empty: bucket '{connector.bucket}' has no files at '{below}'", hint="check prefix or path"
        )
    folder = Path(mkdtemp(prefix="umbel-head-"))
    try:
        check_columns(bucket, connector.format, files, wanted, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tuple((each.path, each.size) for each in files)


def _packed(rows: pl.DataFrame) -> bytes:
    if not rows.height:
        raise InvalidValue("the input is empty: there are no rows", hint="give at least one row")
    data = io.BytesIO()
    rows.write_ipc(data)
    return data.getvalue()
