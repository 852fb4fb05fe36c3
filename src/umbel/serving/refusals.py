"""Responses with errors: `{code, message, hint}`."""

from __future__ import annotations

import math

import msgspec
from starlette.responses import Response

from umbel.errors import UmbelError
from umbel.request_errors import RequestError
from umbel.state.secrecy import concealed

JSON = "application/json"


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
    return ErrorBody(error.code, _speakable(error.placed()), error.hint and _speakable(error.hint))


def _speakable(message: str) -> str:
    """Escape a message so that it can be encoded as UTF-8.

    Text sent by users may contain halves of surrogate pairs.
    """
    return concealed(message.encode("utf-8", "backslashreplace").decode())
