"""Routes of offline queries that run as jobs: submit, status and cancel.

`/query_offline` with an input or an output submits one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import polars as pl
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from umbel.catalog.offline_jobs import OfflineJob, OfflineJobs
from umbel.errors import InvalidValue
from umbel.offline.inputs import InputColumns
from umbel.offline.runner import OfflineRunner
from umbel.offline.submit import OfflineQuery, submit
from umbel.query.arrange import QueryPlan
from umbel.query.encode import columns_from_json, requested_columns
from umbel.serving.headers import branch_of
from umbel.serving.purpose import workflow_of
from umbel.serving.requests import Parameters, answer
from umbel.serving.service import InForce, Service
from umbel.types.dtypes import Datetime

if TYPE_CHECKING:
    from umbel.serving.queries import OfflineQueryRequest

Location = Annotated[
    Any,
    Meta(
        description="Files on S3: `bucket`, `prefix` or `path`, `format`.",
        extra_json_schema={
            "type": ["object", "null"],
            "properties": {
                "bucket": {"type": "string"},
                "prefix": {"type": "string"},
                "path": {"type": "string"},
                "format": {"type": ["string", "object"]},
                "source": {"type": ["object", "null"]},
            },
        },
    ),
]
Columns = Annotated[
    dict[str, str] | None,
    Meta(
        description="The columns of features that are not named after them.",
        extra={"must be": "an object of names", "hint": '{"Featureset.feature": "column"}'},
    ),
]


class JobStatus(msgspec.Struct, frozen=True):
    """The status of an offline query that runs as a job."""

    request_id: str
    output_bucket: str | None
    output_prefix: str | None
    completion_rate: float
    failure_rate: float
    status: str
    reason: str | UnsetType = UNSET


class JobParameters(Parameters, frozen=True):
    """The job."""

    request_id: Annotated[str, Meta(extra={"hint": "?request_id=, as /query_offline answered it"})]


async def begin(request: Request, body: OfflineQueryRequest, in_force: InForce, plan: QueryPlan) -> Response:
    """Submit a job; return its status."""
    service: Service = request.app.state.service
    _check_input(body)
    _check_deleted([*plan.inputs, *plan.outputs], in_force)
    workflow = workflow_of(body.workflow)
    branch = branch_of(request)
    column, columns = body.timestamp_column, body.feature_to_column_map or {}
    question = OfflineQuery(branch, in_force.revision, in_force.graph, plan, column, columns, workflow)
    requested = InputColumns.of(plan.inputs, columns, column, Datetime())

    def run() -> OfflineJob:
        rows = _rows(body.values("data", requested.types), requested) if _has_rows(body) else None
        return submit(service.deployment, question, body.input, body.output, rows)

    job = await asyncio.to_thread(run)
    runner: OfflineRunner = request.app.state.runner
    runner.look()
    return answer(JobStatus(**job.report))


async def status(request: Request, parameters: JobParameters) -> JobStatus:
    """Return the status of a job."""
    service: Service = request.app.state.service
    job = await asyncio.to_thread(OfflineJobs(service.deployment.catalog).get, parameters.request_id)
    return JobStatus(**job.report)


async def cancel(request: Request, parameters: JobParameters) -> JobStatus:
    """Cancel a job, unless it has ended; return its status."""
    service: Service = request.app.state.service
    job = await asyncio.to_thread(OfflineJobs(service.deployment.catalog).cancel, parameters.request_id)
    return JobStatus(**job.report)


def _has_rows(body: OfflineQueryRequest) -> bool:
    return body.data is not UNSET and body.data is not None


def _check_input(body: OfflineQueryRequest) -> None:
    if (body.input is None) != _has_rows(body):
        raise InvalidValue("an offline query has its rows either as 'data' or in 'input'", hint="give one of them")


def _check_deleted(features: Iterable[str], in_force: InForce) -> None:
    deleted = [name for name in features if in_force.engine.catalogue.feature(name).meta.deleted]
    if deleted:
        raise InvalidValue(f"features {deleted} are deleted", hint="leave them out")


def _rows(data: Any, requested: InputColumns) -> pl.DataFrame:
    """Return the rows of a request in storage types."""
    return pl.DataFrame(columns_from_json(requested_columns(data, requested.types), requested.types))
