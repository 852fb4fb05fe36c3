"""Routes that answer: `/query`, `/query_offline`, lookups."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
import polars as pl
from starlette.requests import Request
from starlette.responses import Response

from umbel.errors import InvalidValue, UmbelError
from umbel.plan.graph import MAIN
from umbel.query.arrange import Plan
from umbel.query.encode import column_from_json, columns_from_json, wanted_columns
from umbel.query.execute import repeated
from umbel.query.session import Mode
from umbel.serving import offline as jobs
from umbel.serving.coalesce import SMALL, Coalescer, Question, offline
from umbel.serving.featurelog import Answered
from umbel.serving.purpose import purpose_of
from umbel.serving.requests import BRANCH_HEADER, JSON, object_of, strings, text
from umbel.serving.service import InForce, NeedsHistory, Service
from umbel.serving.usage import Usage
from umbel.types.dtypes import Datetime


async def query(request: Request) -> Response:
    """Answer features from features, as of now or of `as_of`."""
    body = await object_of(request, ("inputs", "outputs", "data"))
    purpose, begun, state = purpose_of(body), time.perf_counter(), request.app.state
    coalescer: Coalescer = state.coalescer
    usage: Usage = state.metrics.usage
    at = datetime.now(UTC) if purpose.is_kept else None
    try:
        question = await _question(request, body, Mode.ONLINE)
        found = await coalescer.answer(question)
    except Exception as error:
        usage.failed(purpose.workflow, error)
        raise
    usage.answered(purpose.workflow, question.plan, question.height, time.perf_counter() - begun)
    if at is not None:
        branch = request.headers.get(BRANCH_HEADER, MAIN)
        given = orjson.dumps(question.columns)
        state.keeper.keep(Answered(branch, purpose, question.at or at, given, found, question.height))
    return Response(found, media_type=JSON)


async def query_offline(request: Request) -> Response:
    """Answer features from features, each row as of its own instant; with an input or an output, begin a job that does."""
    body = await object_of(request, ("inputs", "outputs", "timestamp_column"))
    if jobs.is_job(body):
        return await jobs.begin(request, body, *await _planned(request, body, Mode.OFFLINE))
    if "data" not in body:
        raise InvalidValue("the body lacks 'data'", hint="an object of columns, or a list of rows")
    service: Service = request.app.state.service
    column = text(body, "timestamp_column")
    question = await _question(request, body, Mode.OFFLINE)

    def run() -> bytes:
        given = wanted_columns(body["data"], [column])
        at = column_from_json(given[column], Datetime(), column, "timestamp column")
        if not question.plan.inputs:
            raise InvalidValue("an offline query needs inputs")
        return offline(question, column, at, service.vault)

    return Response(await service.threads.reading.do(run), media_type=JSON)


async def lookup(request: Request) -> Response:
    """Answer the rows of a dataset for some keys, as of now, of `as_of`, or of a timestamp each."""
    body = await object_of(request, ("keys",))
    service: Service = request.app.state.service
    engine = (await service.of(request)).engine
    name = request.path_params["name"]
    definition = engine.dataset(name)
    fields = strings(body, "fields") if body.get("fields") is not None else None
    types = dict(definition.schema.keys)
    given = wanted_columns(body["keys"], types, "keys")

    def run() -> bytes:
        keys = pl.DataFrame(columns_from_json(given, types, "keys"))
        found, is_found = engine.lookup(name, keys, _timestamps(body, keys), fields)
        return orjson.dumps({"data": found.to_json(), "found": is_found.to_list()})

    if _height(given) <= SMALL and body.get("timestamps") is None:
        try:
            return Response(run(), media_type=JSON)
        except NeedsHistory:
            pass
    return Response(await service.threads.reading.do(run), media_type=JSON)


async def _question(request: Request, body: Mapping[str, Any], mode: Mode) -> Question:
    """Return a query as planned for the revision in force."""
    in_force, plan = await _planned(request, body, mode)
    columns = wanted_columns(body["data"], plan.inputs)
    return Question(in_force.engine, plan, columns, _height(columns), _instant(body.get("as_of")))


async def _planned(request: Request, body: Mapping[str, Any], mode: Mode) -> tuple[InForce, Plan]:
    """Return what is in force, and how a query is answered on it.

    What is not known may have been committed to another server process a moment ago.
    """
    service: Service = request.app.state.service
    inputs, outputs = strings(body, "inputs"), strings(body, "outputs")
    in_force = await service.of(request)
    try:
        plan = in_force.engine.plan(inputs, outputs, mode)
    except UmbelError:
        if not await service.threads.following.do(service.refresh):
            raise
        in_force = await service.of(request)
        plan = in_force.engine.plan(inputs, outputs, mode)
    return in_force, plan


def _height(columns: Mapping[str, list[Any]]) -> int:
    return len(next(iter(columns.values()), ()))


def _timestamps(body: Mapping[str, Any], keys: pl.DataFrame) -> pl.Series | None:
    stated = body.get("timestamps")
    if stated is not None:
        if not isinstance(stated, list):
            raise InvalidValue(f"'timestamps' must be a list, found {stated!r:.80}")
        at = column_from_json(stated, Datetime(), "timestamps", "timestamps")
        if len(at) != keys.height:
            raise InvalidValue(f"{keys.height} keys, but {len(at)} timestamps")
        return at
    instant = _instant(body.get("as_of"))
    return None if instant is None else repeated(instant, keys.height)


def _instant(value: Any) -> datetime | None:
    """Return the instant a request asks about, None for now."""
    if value is None:
        return None
    found = column_from_json([value], Datetime(), "as_of", "as_of")[0]
    assert isinstance(found, datetime)
    return found
