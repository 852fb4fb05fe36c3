"""Routes of offline queries that run as jobs: begun by `/query_offline` with an input or an output, followed, cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from starlette.requests import Request
from starlette.responses import Response

from umbel.catalog.offline import OfflineJob, OfflineJobs
from umbel.errors import InvalidType, InvalidValue
from umbel.plan.graph import MAIN
from umbel.query.arrange import Plan
from umbel.query.encode import column_from_json, columns_from_json, wanted_columns
from umbel.runtime.offline.runner import Runner
from umbel.runtime.offline.submit import Question, submit
from umbel.serving.purpose import workflow_of
from umbel.serving.requests import BRANCH_HEADER, answer, text
from umbel.serving.service import InForce, Service
from umbel.types.dtypes import Datetime


def is_job(body: Mapping[str, Any]) -> bool:
    """Return whether a request for an offline query is to run as a job."""
    return body.get("input") is not None or body.get("output") is not None


async def begin(request: Request, body: Mapping[str, Any], in_force: InForce, plan: Plan) -> Response:
    """Begin a job; answer how it is."""
    service: Service = request.app.state.service
    _check_input(body)
    _check_deleted([*plan.inputs, *plan.outputs], in_force)
    workflow = workflow_of(body.get("workflow"))
    branch = request.headers.get(BRANCH_HEADER, MAIN)
    column, columns = text(body, "timestamp_column"), _columns(body)
    question = Question(branch, in_force.revision, in_force.graph, plan, column, columns, workflow)

    def run() -> OfflineJob:
        rows = None if body.get("data") is None else _rows(body["data"], plan, columns, column)
        return submit(service.deployment, question, body.get("input"), body.get("output"), rows)

    job = await asyncio.to_thread(run)
    runner: Runner = request.app.state.runner
    runner.look()
    return answer(job.told)


async def status(request: Request) -> Response:
    """Say how a job is."""
    service: Service = request.app.state.service
    job = await asyncio.to_thread(OfflineJobs(service.deployment.catalog).get, _named(request))
    return answer(job.told)


async def cancel(request: Request) -> Response:
    """Cancel a job, unless it has ended; say how it is then."""
    service: Service = request.app.state.service
    job = await asyncio.to_thread(OfflineJobs(service.deployment.catalog).cancel, _named(request))
    return answer(job.told)


def _named(request: Request) -> str:
    stated = request.query_params.get("request_id")
    if not stated:
        raise InvalidValue("'request_id' is missing", hint="?request_id=, as /query_offline answered it")
    return stated


def _check_input(body: Mapping[str, Any]) -> None:
    if (body.get("input") is None) == (body.get("data") is None):
        raise InvalidValue("an offline query has its rows either as 'data' or in 'input'", hint="give one of them")


def _check_deleted(features: Iterable[str], in_force: InForce) -> None:
    deleted = [name for name in features if in_force.engine.catalogue.feature(name).meta.deleted]
    if deleted:
        raise InvalidValue(f"features {deleted} are deleted", hint="leave them out")


def _columns(body: Mapping[str, Any]) -> dict[str, str]:
    found = body.get("feature_to_column_map") or {}
    if not isinstance(found, Mapping) or not all(isinstance(each, str) for each in found.values()):
        raise InvalidType(
            f"'feature_to_column_map' must be an object of names, found {found!r:.80}",
            hint='{"Featureset.feature": "column"}',
        )
    return dict(found)


def _rows(data: Any, plan: Plan, columns: Mapping[str, str], timestamp: str) -> pl.DataFrame:
    """Return the rows of a request in storage types, by feature."""
    named = {name: columns.get(name, name) for name in plan.inputs}
    given = wanted_columns(data, [*dict.fromkeys(named.values()), timestamp])
    frame = pl.DataFrame(columns_from_json({name: given[column] for name, column in named.items()}, plan.inputs))
    at = column_from_json(given[timestamp], Datetime(), timestamp, "timestamp column")
    return frame.with_columns(at.alias(timestamp))
