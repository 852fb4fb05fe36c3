"""Errors of HTTP requests, and the responses with them: `{code, message, hint}`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from umbel.errors import UmbelError
from umbel.serving.secrecy import concealed

JSON = "application/json"


class RequestError(UmbelError):
    """The root of errors that only HTTP requests have."""

    headers: Mapping[str, str] = {}
    """Headers of the response, besides the usual ones."""


class NoSuchRoute(RequestError):
    """A request has a path that no route has."""

    code = "no-such-route"
    status = 404


class WrongMethod(RequestError):
    """A request has a method that its path does not accept."""

    code = "wrong-method"
    status = 405


class Internal(RequestError):
    """The server itself failed."""

    code = "internal"
    status = 500


class Unhealthy(RequestError):
    """The server answers, but events are not processed as they should be."""

    code = "unhealthy"
    status = 503
    retry_after = 5.0


class TooLarge(RequestError):
    """A request body is larger than the server reads."""

    code = "too-large"
    status = 413


class TooSlow(RequestError):
    """A request body does not arrive in time."""

    code = "too-slow"
    status = 408


class UnsupportedMedia(RequestError):
    """A request body has a content type the server does not read."""

    code = "unsupported-media"
    status = 415


class Unauthenticated(RequestError, PermissionError):
    """A request needs a valid token."""

    code = "unauthenticated"
    status = 401
    headers = {"WWW-Authenticate": "Bearer"}  # noqa: RUF012


class Forbidden(RequestError, PermissionError):
    """The role of a token does not permit a request."""

    code = "forbidden"
    status = 403


class HostNotAllowed(RequestError, PermissionError):
    """A request addresses the server by a host name that is not allowed."""

    code = "host-not-allowed"
    status = 403


class OriginNotAllowed(RequestError, PermissionError):
    """A request was made by a page of another site."""

    code = "origin-not-allowed"
    status = 403


class TooManyAttempts(RequestError, PermissionError):
    """An address has sent too many requests with wrong tokens."""

    code = "too-many-attempts"
    status = 429
    retry_after = 1.0


class ErrorBody(msgspec.Struct, frozen=True):
    """A refused request."""

    code: str
    message: str
    hint: str | None


def refusal(error: UmbelError, content: msgspec.Struct | None = None) -> Response:
    """Return the response with an error.

    Args:
        error: the error.
        content: the body, if it has more members than those of the error.
    """
    headers = {**error.headers} if isinstance(error, RequestError) else {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    return Response(msgspec.json.encode(content or described(error)), error.status, headers, media_type=JSON)


def described(error: UmbelError) -> ErrorBody:
    """Return the body of the response with an error."""
    message = error.message if error.where is None else f"{error.message} (at {error.where})"
    return ErrorBody(error.code, _speakable(message), error.hint and _speakable(error.hint))


def _speakable(message: str) -> str:
    """Escape a message so that it can be encoded as UTF-8.

    Text sent by users may contain halves of surrogate pairs.
    """
    return concealed(message.encode("utf-8", "backslashreplace").decode())
