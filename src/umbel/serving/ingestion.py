"""The route `/log` that accepts events; acknowledged events are on disk."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress
from typing import Annotated, Any, ClassVar

import msgspec
import orjson
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from umbel.errors import InvalidType, InvalidValue
from umbel.formats.json_lines import parse_value
from umbel.query.encode import columns_of
from umbel.serving.endpoint import INLINE
from umbel.serving.metrics import Metrics
from umbel.serving.requests import JsonBody, Parameters, Rows, Text
from umbel.serving.service import Service
from umbel.serving.threads import ThreadPool

LONGEST_ID = 1024


class LogRequest(JsonBody, frozen=True):
    """Rows for the endpoint of a webhook."""

    webhook: Text
    endpoint: Text
    data: Rows

    example: ClassVar = {
        "webhook": "events",
        "endpoint": "departures",
        "data": [{"origin": "JFK", "delay": 30, "ratio": 0.5, "at": "2013-12-01T12:00:00Z"}],
    }


class LogParameters(Parameters, frozen=True):
    """The identity of the request."""

    idempotency_key: Annotated[
        str | None,
        Meta(description="Rows with the same key are stored once.", extra={"header": "Idempotency-Key"}),
    ] = None


class LogResponse(msgspec.Struct, frozen=True):
    """The count and first number of the stored rows, and whether they were repeated."""

    rows: int
    first_row: int | UnsetType = UNSET
    repeated: bool | UnsetType = UNSET


class Posted(msgspec.Struct):
    """The same body with its rows as they were sent, which are stored."""

    webhook: str
    endpoint: str
    data: msgspec.Raw


_decode = msgspec.json.Decoder(Posted).decode


async def log(request: Request, parameters: LogParameters, body: Annotated[bytes, LogRequest]) -> LogResponse:
    """Accept rows for a webhook's endpoint; respond once they are on disk.

    Rows are validated when they are processed: rows that do not fit the dataset become its dead letters.
    """
    service: Service = request.app.state.service
    metrics: Metrics = request.app.state.metrics
    batch_id = _batch_id(parameters.idempotency_key)
    webhook, endpoint, payload, rows = await _taken(body, service.threads.parsing)
    target = await service.endpoint(webhook, endpoint)
    if not rows:
        return LogResponse(0)
    service.backlog.check(webhook, endpoint)
    receipt = await target.append(payload, rows, batch_id=batch_id, received_at=time.time_ns() // 1000)
    if not receipt.is_duplicate:
        metrics.logged(webhook, endpoint, rows)
    return LogResponse(receipt.rows, receipt.row, receipt.is_duplicate)


async def _taken(data: bytes, pool: ThreadPool) -> tuple[str, str, bytes, int]:
    return taken(data) if len(data) <= INLINE else await pool.do(taken, data)


def taken(data: bytes) -> tuple[str, str, bytes, int]:
    """Parse a body into webhook, endpoint, rows as a JSON list, and their count.

    Raises:
        InvalidValue: it is not JSON, or its members or their types are wrong.
    """
    try:
        posted = _decode(data)
        found = orjson.loads(memoryview(posted.data))
    except (msgspec.MsgspecError, RecursionError, orjson.JSONDecodeError) as error:
        LogRequest.parse(data)  # reports the problem, except of a member that a later one of its name replaces
        twice = _repeated(data)
        if twice:
            raise InvalidValue(
                f"the body has {', '.join(map(repr, twice))} more than once", hint="send it once"
            ) from None
        raise InvalidValue(f"the body is not JSON: {error}") from None
    if isinstance(found, list):
        return posted.webhook, posted.endpoint, bytes(posted.data), len(found)
    if not isinstance(found, dict):
        raise InvalidType(f"'data' must be a list of row objects or an object of columns, found {found!r:.80}")
    rows = _transposed(bytes(posted.data))
    return posted.webhook, posted.endpoint, _dumped(rows), len(rows)


def _repeated(data: bytes) -> list[str]:
    """Return the members of a JSON object that it has more than once."""
    pairs: list[tuple[str, Any]] = []
    with suppress(ValueError, RecursionError):
        pairs = json.loads(data, object_pairs_hook=list)
    return [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]


def _transposed(data: bytes) -> list[dict[str, Any]]:
    columns = columns_of(parse_value(data))
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _dumped(rows: list[dict[str, Any]]) -> bytes:
    try:
        return orjson.dumps(rows)
    except TypeError:  # integers beyond 64 bits
        return json.dumps(rows, separators=(",", ":")).encode()


def _batch_id(declared: str | None) -> str | None:
    if declared is None:
        return None
    if not declared.strip() or len(declared) > LONGEST_ID:
        raise InvalidValue(f"the header Idempotency-Key must have 1 to {LONGEST_ID} characters, found {len(declared)}")
    return declared
