"""Requests: bodies read within bounds, and refused in one form: `{code, message, hint}`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from umbel.errors import InvalidType, InvalidValue, NotSupported, Terminal, Transient, UmbelError, UnknownName

MAX_BODY = 32 << 20
"""Bytes of the largest body that is read."""
PATIENCE = 60.0
"""Seconds within which a body must arrive."""
BRANCH_HEADER = "X-UMBEL-BRANCH"
JSON, PROTOBUF = "application/json", "application/x-protobuf"
_SHOWN = 200


class TooLarge(UmbelError):
    """A request body is larger than the server reads."""

    code = "too-large"


class TooSlow(UmbelError):
    """A request body does not arrive."""

    code = "too-slow"


class UnsupportedMedia(UmbelError):
    """A request body is in a form the server does not read."""

    code = "unsupported-media"


STATUS: dict[type[UmbelError], int] = {
    TooSlow: 408,
    TooLarge: 413,
    UnsupportedMedia: 415,
    UnknownName: 404,
    Transient: 503,
    NotSupported: 422,
    Terminal: 422,
}


async def body_of(request: Request, *media: str) -> bytes:
    """Return the body of a request.

    Args:
        request: whose.
        media: the content types it may have; one that states none is believed to have the first.

    Raises:
        TooLarge: it is too large; no more of it is read.
        TooSlow: it does not arrive.
        UnsupportedMedia: it is something else, or compressed.
    """
    _check_media(request, media)
    stated = request.headers.get("content-length", "")
    if stated.isdigit() and int(stated) > MAX_BODY:
        raise _too_large()
    try:
        async with asyncio.timeout(PATIENCE):
            return await _read(request)
    except TimeoutError:
        raise TooSlow(f"the body did not arrive within {PATIENCE:.0f} s") from None


async def _read(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            raise _too_large()
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def object_of(request: Request, required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON object a request carries.

    Raises:
        InvalidValue: it is no JSON object, or lacks a required member.
    """
    return members(await body_of(request, JSON), required)


def members(data: bytes, required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON object that a body is; see `object_of`."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidValue(f"the body is not JSON: {error}", hint='send a JSON object: {"name": …}') from None
    if not isinstance(found, dict):
        raise InvalidType(f"the body must be a JSON object, found {_kind(found)}")
    missing = [name for name in required if name not in found]
    if missing:
        raise InvalidValue(f"the body lacks {', '.join(map(repr, missing))}", hint=f"it has {_listed(found)}")
    return found


def strings(body: Mapping[str, Any], name: str) -> list[str]:
    """Return a member that must be a list of strings."""
    found = body[name]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidType(f"'{name}' must be a list of strings, found {_short(found)}")
    return found


def text(body: Mapping[str, Any], name: str) -> str:
    """Return a member that must be a string."""
    found = body[name]
    if not isinstance(found, str):
        raise InvalidType(f"'{name}' must be a string, found {_short(found)}")
    return found


def count(request: Request, name: str, default: int, most: int) -> int:
    """Return a parameter of the query string that must be a whole number from 0 to `most`."""
    stated = request.query_params.get(name)
    if stated is None:
        return default
    if not (stated.isascii() and stated.isdigit()) or len(stated) > 9 or int(stated) > most:
        raise InvalidValue(f"'{name}' must be a whole number from 0 to {most}, found {stated!r:.80}")
    return int(stated)


def flag(request: Request, name: str, *, default: bool) -> bool:
    """Return a parameter of the query string that must be `true` or `false`."""
    stated = request.query_params.get(name, "").lower()
    if stated in {"", "none"}:
        return default
    if stated not in _FLAGS:
        raise InvalidValue(f"'{name}' must be true or false, found {stated!r:.80}")
    return _FLAGS[stated]


_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(orjson.dumps(content), status, headers, media_type=JSON)


def refusal(error: UmbelError) -> Response:
    """Return the response to a request that an error ended."""
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 400)
    message = error.message if error.where is None else f"{error.message} (at {error.where})"
    content = {"code": error.code, "message": _speakable(message), "hint": error.hint and _speakable(error.hint)}
    return answer(content, status, {"Retry-After": "1"} if status == 503 else None)


def _check_media(request: Request, media: tuple[str, ...]) -> None:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise UnsupportedMedia(f"bodies in {encoding!r:.80} are not read", hint="send the body uncompressed")
    stated = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if stated and stated not in media and not (JSON in media and stated.endswith("+json")):
        raise UnsupportedMedia(
            f"a body of type {stated!r:.80} is not read here", hint=f"Content-Type: {' or '.join(media)}"
        )


def _too_large() -> TooLarge:
    return TooLarge(f"the body is larger than {MAX_BODY >> 20} MiB", hint="send it in parts")


def _short(value: Any) -> str:
    return f"{value!r:.{_SHOWN}}"


def _kind(value: Any) -> str:
    return {list: "a list", str: "a string", type(None): "null", bool: "a truth value"}.get(type(value), "a number")


def _listed(found: Mapping[str, Any]) -> str:
    return f"{', '.join(sorted(found))[:_SHOWN]}" or "nothing"


def _speakable(message: str) -> str:
    """Return text that can be written as UTF-8: what users sent may hold halves of surrogate pairs."""
    return message.encode("utf-8", "backslashreplace").decode()
