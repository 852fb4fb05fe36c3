"""The route `/log` that accepts events; acknowledged events are on disk."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
import orjson
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from umbel.connectors.webhook import MAX_BODY
from umbel.errors import Conflict, InvalidType, InvalidValue
from umbel.formats.compression import decompressed
from umbel.formats.json_lines import lines_of
from umbel.query.encode import columns_of
from umbel.serving.arrow_rows import check_expansion, rows_of_stream
from umbel.serving.headers import headers_of
from umbel.serving.metrics import Metrics
from umbel.serving.requests import ARROW, INLINE, LINES, JsonBody, Parameters, Rows, Text, plain_media
from umbel.serving.service import Service
from umbel.serving.threads import ThreadPool

LONGEST_ID = 1024
NEW_KEY = "send other rows with a key of their own"
_BOM = b"\xef\xbb\xbf"
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""The first bytes of compressed data, with which no JSON begins."""


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


_NAMED = "In the query string where the body is not JSON."


class LogParameters(Parameters, frozen=True):
    """The identity of the request, and the endpoint of a body that has only rows."""

    webhook: Annotated[str | None, Meta(description=f"The name of a webhook. {_NAMED}")] = None
    endpoint: Annotated[str | None, Meta(description=f"One of its endpoints. {_NAMED}")] = None
    idempotency_key: Annotated[
        str | None,
        Meta(description="Rows with the same key are stored once.", extra={"header": "Idempotency-Key"}),
    ] = None


class LogResponse(msgspec.Struct, frozen=True):
    """The count and first number of the stored rows, and whether they were repeated.

    `broken` counts the lines among them that are not JSON, and become dead letters.
    """

    rows: int
    first_row: int | UnsetType = UNSET
    repeated: bool | UnsetType = UNSET
    broken: int | UnsetType = UNSET


class Posted(msgspec.Struct):
    """The same body with its rows as they were sent, which are stored."""

    webhook: str
    endpoint: str
    data: msgspec.Raw


_decode = msgspec.json.Decoder(Posted).decode
_columns = msgspec.json.Decoder(dict[str, list[msgspec.Raw]]).decode


class RowsTaken(NamedTuple):
    """The rows of a body.

    Args:
        webhook: their webhook.
        endpoint: one of its endpoints.
        payload: they, as a JSON list.
        rows: their number.
        broken: how many of them are lines that are not JSON.
    """

    webhook: str
    endpoint: str
    payload: bytes
    rows: int
    broken: int = 0


async def log(
    request: Request, parameters: LogParameters, body: Annotated[bytes, LogRequest, LINES, ARROW]
) -> LogResponse:
    """Accept rows for a webhook's endpoint; respond once they are on disk.

    Rows are validated when they are processed: rows that do not fit the dataset become its dead letters.
    A body of lines of JSON, or an Arrow IPC stream, has its endpoint in the query string. Any may be compressed by gzip or zstd.
    """
    service: Service = request.app.state.service
    metrics: Metrics = request.app.state.metrics
    batch_id = _batch_id(parameters.idempotency_key)
    found = await _taken(request, parameters, body, service.threads.parsing)
    target = await service.endpoint(found.webhook, found.endpoint)
    if not found.rows:
        return LogResponse(0)
    service.backlog.check(found.webhook, found.endpoint)
    receipt = await target.append(found.payload, found.rows, batch_id=batch_id, received_at=time.time_ns() // 1000)
    if receipt.has_other_rows:
        raise Conflict("the Idempotency-Key was sent with other rows before: these were not stored", hint=NEW_KEY)
    if not receipt.is_duplicate:
        metrics.logged(found.webhook, found.endpoint, found.rows)
    return LogResponse(receipt.rows, receipt.row, receipt.is_duplicate, found.broken or UNSET)


async def _taken(request: Request, parameters: LogParameters, data: bytes, pool: ThreadPool) -> RowsTaken:
    headers = headers_of(request)
    media, encoding = plain_media(headers.get(b"content-type", b"")), headers.get(b"content-encoding", b"")
    if media not in _FORMS and not encoding:
        return taken(data) if len(data) <= INLINE else await pool.do(taken, data)

    def read() -> RowsTaken:
        return _converted(decompressed(data, encoding, MAX_BODY), media, parameters)

    return read() if len(data) <= INLINE and not encoding and media == LINES else await pool.do(read)


def _converted(data: bytes, media: str, parameters: LogParameters) -> RowsTaken:
    form = _FORMS.get(media)
    if form is None:
        return taken(data)
    names = {"webhook": parameters.webhook, "endpoint": parameters.endpoint}
    missing = ", ".join(f"'{name}'" for name, value in names.items() if not value)
    if missing:
        raise InvalidValue(
            f"the query string lacks {missing}: a body of type {media} has only rows",
            hint="POST /api/v1/log?webhook=NAME&endpoint=NAME",
        )
    return RowsTaken(parameters.webhook or "", parameters.endpoint or "", *form(data))


def _check_plain(data: bytes) -> None:
    """Refuse compressed data."""
    packed = next((name for magic, name in _PACKED.items() if data.startswith(magic)), None)
    if packed is not None:
        raise InvalidValue("the body is compressed, and no header says so", hint=f"Content-Encoding: {packed}")


def rows_of_lines(data: bytes) -> tuple[bytes, int, int]:
    """Return lines of JSON as a list, their number, and the number of broken ones.

    A line that is not JSON is a text in the list. Blank lines are left out, and so is a byte order mark.
    """
    _check_plain(data)
    lines, broken = lines_of(data.removeprefix(_BOM)), 0
    for at, line in enumerate(lines):
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError:
            lines[at] = orjson.dumps(line.decode(errors="backslashreplace"))
            broken += 1
    return b"[%b]" % b",".join(lines), len(lines), broken


_FORMS: Mapping[str, Callable[[bytes], tuple[Any, ...]]] = {LINES: rows_of_lines, ARROW: rows_of_stream}
"""Converters to a JSON list, by content type."""


def taken(data: bytes) -> RowsTaken:
    """Parse a body into webhook, endpoint, rows as a JSON list, and their count.

    Raises:
        InvalidValue: it is not JSON, or its members or their types are wrong.
    """
    _check_plain(data)
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
        return RowsTaken(posted.webhook, posted.endpoint, bytes(posted.data), len(found))
    if not isinstance(found, dict):
        raise InvalidType(f"'data' must be a list of row objects or an object of columns, found {found!r:.80}")
    rows = _transposed(found, bytes(posted.data))
    return RowsTaken(posted.webhook, posted.endpoint, b"[%b]" % b",".join(rows), len(rows))


def _repeated(data: bytes) -> list[str]:
    """Return the members of a JSON object that it has more than once."""
    pairs: list[tuple[str, Any]] = []
    with suppress(ValueError, RecursionError):
        pairs = json.loads(data, object_pairs_hook=list)
    return [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]


def _transposed(found: dict[str, Any], text: bytes) -> list[bytes]:
    """Return columns as the texts of rows: numbers may have more digits than floats."""
    columns = columns_of(found)
    check_expansion(columns, max(map(len, columns.values()), default=0))
    members = [[b"%b:%b" % (orjson.dumps(name), value) for value in values] for name, values in _columns(text).items()]
    return [b"{%b}" % b",".join(row) for row in zip(*members, strict=True)]


def _batch_id(declared: str | None) -> str | None:
    if declared is None:
        return None
    if not declared.strip() or len(declared) > LONGEST_ID:
        raise InvalidValue(f"the header Idempotency-Key must have 1 to {LONGEST_ID} characters, found {len(declared)}")
    return declared
