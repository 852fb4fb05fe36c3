"""Requests: bodies read within bounds, and refused in one form: `{code, message, hint}`."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from umbel.errors import InvalidType, InvalidValue, NotSupported, Terminal, Transient, UmbelError, UnknownName

MAX_BODY = 32 << 20
"""Bytes of the largest body that is read."""


class TooLarge(UmbelError):
    """A request body is larger than the server reads."""

    code = "too-large"


STATUS: dict[type[UmbelError], int] = {
    TooLarge: 413,
    UnknownName: 404,
    Transient: 503,
    NotSupported: 501,
    Terminal: 422,
}


async def body_of(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        TooLarge: it is too large; no more of it is read.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            raise TooLarge(f"the body is larger than {MAX_BODY >> 20} MiB", hint="send it in parts")
        parts.append(part)
    return b"".join(parts)


async def object_of(request: Request, required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON object a request carries.

    Raises:
        InvalidValue: it is no JSON object, or lacks a required member.
    """
    data = await body_of(request)
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidValue(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidType(f"the body must be a JSON object, found {type(found).__name__}")
    missing = [name for name in required if name not in found]
    if missing:
        raise InvalidValue(f"the body lacks {', '.join(map(repr, missing))}", hint=f"it has {sorted(found)}")
    return found


def strings(body: dict[str, Any], name: str) -> list[str]:
    """Return a member that must be a list of strings."""
    found = body[name]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidType(f"'{name}' must be a list of strings, found {found!r:.200}")
    return found


def answer(content: Any, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(orjson.dumps(content), status, media_type="application/json")


def refusal(error: UmbelError) -> Response:
    """Return the response to a request that an error ended."""
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 400)
    return answer({"code": error.code, "message": error.message, "hint": error.hint}, status)
