"""Routes of data: `/log`, `/query`, `/query_offline`, lookup and inspect."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
import polars as pl
from starlette.requests import Request
from starlette.responses import Response

from umbel.errors import InvalidType, InvalidValue
from umbel.query.encode import column_from_json, columns_of, from_json
from umbel.query.execute import repeated
from umbel.query.session import Mode
from umbel.serving.requests import answer, object_of, strings
from umbel.serving.service import Service
from umbel.types.dtypes import Datetime

SMALL = 200
"""Queries of at most so many rows are answered on the event loop; larger ones in a thread."""


async def log(request: Request) -> Response:
    """Accept rows for a webhook's endpoint; answer once they are on disk."""
    service: Service = request.app.state.service
    body = await object_of(request, ("webhook", "endpoint", "data"))
    rows = _rows(body["data"])
    endpoint = service.endpoint(_text(body, "webhook"), _text(body, "endpoint"))
    batch_id = request.headers.get("Idempotency-Key")
    if not rows:
        return answer({"rows": 0})
    receipt = await endpoint.append(orjson.dumps(rows), len(rows), batch_id=batch_id)
    request.app.state.metrics.logged(len(rows))
    return answer({"rows": len(rows), "first_row": receipt.row, "repeated": receipt.is_duplicate})


async def query(request: Request) -> Response:
    """Answer features from features, as of now or of `as_of`."""
    body = await object_of(request, ("inputs", "outputs", "data"))
    service: Service = request.app.state.service
    engine = service.current.engine
    plan = engine.plan(strings(body, "inputs"), strings(body, "outputs"), Mode.ONLINE)
    given = from_json(body["data"], plan.inputs)
    at = _instant(body.get("as_of"))

    def run() -> bytes:
        found = engine.online(plan, {name: given[name] for name in given.columns}, given.height, at)
        return orjson.dumps(found.to_json())

    data = run() if given.height <= SMALL else await asyncio.to_thread(run)
    return Response(data, media_type="application/json")


async def query_offline(request: Request) -> Response:
    """Answer features from features, each row as of its own instant."""
    body = await object_of(request, ("inputs", "outputs", "data", "timestamp_column"))
    service: Service = request.app.state.service
    engine = service.current.engine
    plan = engine.plan(strings(body, "inputs"), strings(body, "outputs"), Mode.OFFLINE)
    column = _text(body, "timestamp_column")
    given = from_json(body["data"], {**plan.inputs, column: Datetime()})

    def run() -> bytes:
        columns = {name: given[name] for name in plan.inputs}
        found = engine.offline(plan, columns, given[column]).to_json()
        return orjson.dumps({**found, column: [instant.isoformat() for instant in given[column]]})

    return Response(await asyncio.to_thread(run), media_type="application/json")


async def lookup(request: Request) -> Response:
    """Answer the rows of a dataset for some keys, as of now, of `as_of`, or of a timestamp each."""
    body = await object_of(request, ("keys",))
    service: Service = request.app.state.service
    engine = service.current.engine
    name = request.path_params["name"]
    definition = engine.dataset(name)
    keys = from_json(body["keys"], dict(definition.schema.keys), "keys")
    fields = strings(body, "fields") if body.get("fields") is not None else None
    at = _timestamps(body, keys)

    def run() -> bytes:
        found, is_found = engine.lookup(name, keys, at, fields)
        return orjson.dumps({"data": found.to_json(), "found": is_found.to_list()})

    data = run() if keys.height <= SMALL else await asyncio.to_thread(run)
    return Response(data, media_type="application/json")


def _timestamps(body: Mapping[str, Any], keys: pl.DataFrame) -> pl.Series | None:
    if body.get("timestamps") is not None:
        at = column_from_json(body["timestamps"], Datetime(), "timestamps", "timestamps")
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


def _rows(data: Any) -> list[Any]:
    """Return posted data as row objects; what is no object stays, for the dead letters."""
    if isinstance(data, list):
        return data
    columns = columns_of(data)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _text(body: Mapping[str, Any], name: str) -> str:
    if not isinstance(body[name], str):
        raise InvalidType(f"'{name}' must be a string, found {body[name]!r:.200}")
    return str(body[name])
