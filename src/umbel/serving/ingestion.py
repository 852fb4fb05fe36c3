"""The route that accepts events: `/log`. What it has answered for is on disk."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import msgspec
import orjson
from starlette.requests import Request
from starlette.responses import Response

from umbel.connectors.jsonlines import parse_value
from umbel.errors import InvalidType, InvalidValue
from umbel.query.encode import columns_of
from umbel.serving.metrics import Metrics
from umbel.serving.requests import JSON, answer, body_of, members, text
from umbel.serving.service import Service

INLINE = 1 << 20
"""Bodies of at most so many bytes are taken apart on the event loop, larger ones in a thread."""
LONGEST_ID = 1024


class Posted(msgspec.Struct):
    """The body of a request; its rows are kept as they were sent."""

    webhook: str
    endpoint: str
    data: msgspec.Raw


_decode = msgspec.json.Decoder(Posted).decode


async def log(request: Request) -> Response:
    """Accept rows for a webhook's endpoint; answer once they are on disk.

    Rows are judged when they are processed: what does not fit the dataset is found among its dead letters.
    """
    service: Service = request.app.state.service
    metrics: Metrics = request.app.state.metrics
    data = await body_of(request, JSON)
    batch_id = _batch_id(request)
    webhook, endpoint, payload, rows = await _taken(data)
    target = await service.endpoint(webhook, endpoint)
    if not rows:
        return answer({"rows": 0})
    receipt = await target.append(payload, rows, batch_id=batch_id, received_at=time.time_ns() // 1000)
    if not receipt.is_duplicate:
        metrics.logged(webhook, endpoint, rows)
    return answer({"rows": receipt.rows, "first_row": receipt.row, "repeated": receipt.is_duplicate})


async def _taken(data: bytes) -> tuple[str, str, bytes, int]:
    if len(data) <= INLINE:
        return taken(data)
    return await asyncio.to_thread(taken, data)


def taken(data: bytes) -> tuple[str, str, bytes, int]:
    """Return the webhook, the endpoint, the rows as a JSON list, and how many there are.

    Raises:
        InvalidValue: it is not JSON, or not as it should be.
    """
    try:
        posted = _decode(data)
        found = orjson.loads(memoryview(posted.data))
    except (msgspec.MsgspecError, RecursionError, orjson.JSONDecodeError):
        body = members(data, ("webhook", "endpoint", "data"))  # says what is wrong
        text(body, "webhook"), text(body, "endpoint")
        raise InvalidValue("the body is not JSON") from None
    if isinstance(found, list):
        return posted.webhook, posted.endpoint, bytes(posted.data), len(found)
    if not isinstance(found, dict):
        raise InvalidType(f"'data' must be a list of row objects or an object of columns, found {found!r:.80}")
    rows = _transposed(bytes(posted.data))
    return posted.webhook, posted.endpoint, _dumped(rows), len(rows)


def _transposed(data: bytes) -> list[dict[str, Any]]:
    columns = columns_of(parse_value(data))
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _dumped(rows: list[dict[str, Any]]) -> bytes:
    try:
        return orjson.dumps(rows)
    except TypeError:  # integers beyond 64 bits
        return json.dumps(rows, separators=(",", ":")).encode()


def _batch_id(request: Request) -> str | None:
    stated = request.headers.get("Idempotency-Key")
    if stated is None:
        return None
    if not stated.strip() or len(stated) > LONGEST_ID:
        raise InvalidValue(f"the header Idempotency-Key must have 1 to {LONGEST_ID} characters, found {len(stated)}")
    return stated
