"""Routes that answer queries: `/query`, `/query_offline` and lookups."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any, ClassVar

import msgspec
import orjson
import polars as pl
from msgspec import UNSET, Meta
from starlette.requests import Request
from starlette.responses import Response

from umbel.errors import InvalidValue, UmbelError
from umbel.query.answer import DTYPES_HEADER
from umbel.query.arrange import QueryPlan
from umbel.query.columns import check_timestamp, mapped
from umbel.query.encode import column_from_json, columns_from_json, requested_columns, rows_from_json, to_json
from umbel.query.execute import QueryEngine, checked_fields, repeated
from umbel.query.session import QueryMode
from umbel.serving import offline as jobs
from umbel.serving.coalesce import SMALL, Coalescer, Encoded, PendingQuery, offline
from umbel.serving.feature_log import Answered
from umbel.serving.headers import branch_of
from umbel.serving.purpose import purpose_of, workflow_of
from umbel.serving.requests import (
    REVISION_HEADER,
    DatasetName,
    Instant,
    JsonBody,
    JsonResponse,
    Names,
    OptionalNames,
    Rows,
    Text,
    Workflow,
    shown,
)
from umbel.serving.service import InForce, NeedsHistory, Service
from umbel.serving.usage import Usage
from umbel.types.dtypes import Datetime, DType

LONGEST_DTYPES = 4096
"""Bytes of the header with dtypes, which is left out if it is longer: many proxies and clients refuse large heads."""
_REVISION, _DTYPES = REVISION_HEADER.lower().encode(), DTYPES_HEADER.lower().encode()


class QueryRequest(JsonBody, frozen=True):
    """A query of features."""

    inputs: Names
    outputs: Names
    data: Rows
    as_of: Instant = None
    workflow: Workflow = None
    log: Annotated[
        bool | None,
        Meta(description="Log the answer.", extra={"must be": "true or false", "hint": "leave it out"}),
    ] = None
    sampling_rate: Annotated[
        float | None,
        Meta(
            description="The share of the rows that is logged.",
            extra={"must be": "a number", "hint": "a share from 0 to 1"},
            extra_json_schema={"minimum": 0, "maximum": 1},
        ),
    ] = None

    example: ClassVar = {
        "inputs": ["Origin.origin"],
        "outputs": ["Origin.departures"],
        "data": {"Origin.origin": ["JFK", "LGA"]},
    }


class OfflineQueryRequest(JsonBody, frozen=True):
    """An offline query of rows in `data`, or of files, as a job."""

    inputs: Names
    outputs: Names
    timestamp_column: Text
    data: Rows = UNSET
    input: jobs.Location = None
    output: jobs.Location = None
    feature_to_column_map: jobs.Columns = None
    workflow: Workflow = None

    example: ClassVar = {
        "inputs": ["Origin.origin"],
        "outputs": ["Origin.departures"],
        "timestamp_column": "at",
        "data": {"Origin.origin": ["JFK"], "at": ["2013-12-01T12:00:00Z"]},
    }


class LookupRequest(JsonBody, frozen=True):
    """The keys of the rows to look up."""

    keys: Rows
    fields: OptionalNames = None
    timestamps: Annotated[
        Any,
        Meta(description="An instant for each key.", extra_json_schema={"type": ["array", "null"]}),
    ] = None
    as_of: Instant = None

    example: ClassVar = {"keys": [{"origin": "JFK"}]}


class LookupResponse(msgspec.Struct):
    """The columns of the rows, null where none was found, and whether each was found."""

    data: dict[str, list[Any]]
    found: list[bool]


FeatureColumns = dict[str, list[Any]]


async def query(request: Request, body: QueryRequest) -> Annotated[Response, FeatureColumns]:
    """Answer a query of features, as of now or of `as_of`."""
    purpose = purpose_of(body.workflow, body.log, body.sampling_rate)
    begun, state = time.perf_counter(), request.app.state
    coalescer: Coalescer = state.coalescer
    usage: Usage = state.metrics.usage
    try:
        in_force, plan = await planned(request, body.inputs, body.outputs, QueryMode.ONLINE)
        question = _question(in_force, plan, await _data(request, body, plan), at=instant_of(body.as_of))
        found = await coalescer.answer(question)
    except Exception as error:
        usage.failed(purpose.workflow, error)
        raise
    usage.answered(purpose.workflow, question.plan, question.height, time.perf_counter() - begun)
    if purpose.is_logged and found.at is not None:
        service: Service = state.service
        read = partial(_inputs_read, question)
        provided = read() if question.height <= SMALL else await service.threads.answering.do(read)
        answered = Answered(branch_of(request), purpose, found.at, provided, found.content, question.height)
        state.feature_log_writer.keep(answered)
    return _answer(found, in_force.revision)


async def query_offline(
    request: Request, body: OfflineQueryRequest
) -> Annotated[Response, FeatureColumns, jobs.JobStatus]:
    """Answer features, each row as of its own instant; or submit a job.

    A query with an input or an output is submitted as a job.
    """
    is_job = body.input is not None or body.output is not None
    if not is_job and body.data is UNSET:
        raise InvalidValue("the body lacks 'data'", hint="an object of columns, or a list of rows")
    in_force, plan = await planned(request, body.inputs, body.outputs, QueryMode.OFFLINE)
    check_timestamp(body.timestamp_column, plan.outputs)
    if is_job:
        return await jobs.begin(request, body, in_force, plan)
    workflow_of(body.workflow)
    service: Service = request.app.state.service
    column = body.timestamp_column
    columns = mapped(plan.inputs, body.feature_to_column_map or {})
    question = _question(in_force, plan, await _data(request, body, plan), columns)

    def run() -> Encoded:
        provided = requested_columns(body.data, [column])
        at = column_from_json(provided[column], Datetime(), column, "timestamp column")
        return offline(question, column, at, service.vault)

    pool = (
        service.threads.reading if question.plan.is_rowwise else service.threads.answering
    )  # user code may not return
    return _answer(await pool.do(run), in_force.revision)


async def lookup(request: Request, name: DatasetName, body: LookupRequest) -> Annotated[Response, LookupResponse]:
    """Look up rows of a dataset by key, as of now or of instants.

    The instant is `as_of` for all keys, or a timestamp for each.
    """
    service: Service = request.app.state.service
    in_force = await service.of(request)
    engine = in_force.engine
    with in_force.explaining(lambda other: _provided(other, name, body)):
        types, provided = _provided(engine, name, body)

    def run() -> Encoded:
        keys = pl.DataFrame(columns_from_json(provided, types, "keys"))
        found, is_found = engine.lookup(name, keys, _timestamps(body, keys), body.fields)
        return Encoded(msgspec.json.encode(LookupResponse(found.to_json(), is_found.to_list())))

    if _height(provided) <= SMALL and body.timestamps is None:
        try:
            return _answer(run(), in_force.revision)
        except NeedsHistory:
            pass
    return _answer(await service.threads.reading.do(run), in_force.revision)


def _answer(found: Encoded, revision: int) -> Response:
    """Return a response that names the revision it was computed on."""
    headers = [(_REVISION, b"%d" % revision)]
    if found.dtypes and len(found.dtypes) <= LONGEST_DTYPES:
        headers.append((_DTYPES, found.dtypes.encode()))
    return JsonResponse(found.content, headers)


def _provided(engine: QueryEngine, name: str, body: LookupRequest) -> tuple[dict[str, DType], dict[str, list[Any]]]:
    """Return the types of a dataset's keys, and the provided keys."""
    definition = engine.dataset(name)
    checked_fields(definition, body.fields)
    types = dict(definition.schema.keys)
    return types, requested_columns(body.values("keys", types), types, "keys")


async def _data(request: Request, body: QueryRequest | OfflineQueryRequest, plan: QueryPlan) -> Any:
    """Return the rows of a query, with all digits of decimals."""
    if not body.is_large:
        return body.values("data", plan.inputs)
    service: Service = request.app.state.service
    return await service.threads.parsing.do(body.values, "data", plan.inputs)


def _question(
    in_force: InForce, plan: QueryPlan, data: Any, named: Mapping[str, str] | None = None, at: datetime | None = None
) -> PendingQuery:
    """Return a query of the rows in a body.

    Args:
        in_force: the definitions in force.
        plan: the query's plan.
        data: the rows.
        named: the column of each input, if some are not named after it.
        at: the instant of an as-of query.
    """
    columns = requested_columns(data, plan.inputs if named is None else dict.fromkeys(named.values()))
    height = len(data) if isinstance(data, list) else _height(columns)  # rows may lack columns
    if named is not None:
        columns = {name: columns[column] for name, column in named.items()}
    return PendingQuery(in_force.engine, plan, columns, height, at)


async def planned(
    request: Request, inputs: list[str], outputs: list[str], mode: QueryMode
) -> tuple[InForce, QueryPlan]:
    """Return the definitions in force and the plan of a query on them.

    An unknown name may have been committed by another server process a moment ago, so the definitions are refreshed once.
    """
    service: Service = request.app.state.service
    in_force = await service.of(request)
    try:
        plan = _plan(in_force, inputs, outputs, mode)
    except UmbelError:
        before = in_force
        await service.threads.following.do(service.refresh)
        in_force = await service.of(request)
        if in_force is before:
            raise
        plan = _plan(in_force, inputs, outputs, mode)
    return in_force, plan


def _plan(in_force: InForce, inputs: list[str], outputs: list[str], mode: QueryMode) -> QueryPlan:
    try:
        return in_force.engine.plan(inputs, outputs, mode)
    except UmbelError:  # only now: it costs as much as finding a plan
        with in_force.explaining(lambda engine: engine.plan(inputs, outputs, mode)):
            return in_force.engine.plan(inputs, outputs, mode)


def _inputs_read(question: PendingQuery) -> bytes:
    """Return the inputs of a query as JSON, in the form of answers.

    Those of the request may be in any form that is accepted.
    """
    types = question.plan.inputs
    return orjson.dumps(to_json(rows_from_json(question.columns, types), types))


def _height(columns: Mapping[str, list[Any]]) -> int:
    return len(next(iter(columns.values()), ()))


def _timestamps(body: LookupRequest, keys: pl.DataFrame) -> pl.Series | None:
    declared = body.timestamps
    if declared is not None and body.as_of is not None:
        raise InvalidValue(
            "a lookup has both 'timestamps' and 'as_of'", hint="give an instant for each key, or one for all"
        )
    if declared is not None:
        if not isinstance(declared, list):
            raise InvalidValue(f"'timestamps' must be a list, found {shown(declared)}")
        at = column_from_json(declared, Datetime(), "timestamps", "timestamps")
        if len(at) != keys.height:
            raise InvalidValue(f"{keys.height} keys, but {len(at)} timestamps")
        return at
    instant = instant_of(body.as_of)
    return None if instant is None else repeated(instant, keys.height)


def instant_of(value: Any) -> datetime | None:
    """Parse the instant of an as-of query, None for now."""
    if value is None:
        return None
    found = column_from_json([value], Datetime(), "as_of", "as_of")[0]
    assert isinstance(found, datetime)
    return found
