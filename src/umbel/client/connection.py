"""HTTP requests to a server, and the decoding of its responses."""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from umbel.bearer import bearer
from umbel.client.localtoken import LocalServer, local_server, token_of
from umbel.client.response import Response
from umbel.errors import InvalidType, Overloaded, RuntimeFailure, Transient, UmbelError

if TYPE_CHECKING:
    import httpx

BRANCH_HEADER = "X-UMBEL-BRANCH"
PROTOBUF = "application/x-protobuf"
KEY_HEADER = "Idempotency-Key"
PAUSES = (0.1, 0.5, 2.0)
"""The waiting times before each retry, in seconds."""
LONGEST_PAUSE = 30.0
"""The maximum waiting time before a retry, in seconds, regardless of `Retry-After`."""
OVERLOADED_PATIENCE = 300.0
"""The total time of retries on an overloaded server, in seconds."""
UNAVAILABLE = frozenset({502, 503, 504})
"""The HTTP statuses of a server, or a proxy in front of it, that may serve the same request later."""
START = "start one: umbel run MODULE (or umbel up); if it runs elsewhere, say where: --url, UMBEL_URL, Client(url)"
UNAUTHENTICATED = 401
VARIABLE = "UMBEL_TOKEN"
"""The environment variable of the default token."""
TIMEOUT = 600.0
"""The timeout of a connection or a response, in seconds."""


class RequestFailed(RuntimeFailure):
    """The server refused a request."""

    code = "request-failed"


class Unreachable(Transient):
    """The server did not respond."""

    code = "unreachable"


class HttpConnection:
    """Sends requests to one server; thread-safe.

    Args:
        url: of the server.
        token: authenticates the caller; if empty, `UMBEL_TOKEN` or the token written by this account's server on this machine.
        transport: replaces the network, for tests.
    """

    def __init__(self, url: Any, token: str, transport: httpx.BaseTransport | None = None) -> None:
        import httpx

        if not isinstance(url, str) or not url:
            raise InvalidType(
                f"Client: the url must be text, got {url!r}", hint='Client("http://localhost:8425", token)'
            )
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._token = bearer(token or "", "Client") or bearer(os.environ.get(VARIABLE, ""), VARIABLE)
        self._local: LocalServer | None = None
        self._is_looked_for = not self._token and transport is None
        if self._is_looked_for:
            self._look()
        self._http = httpx.Client(base_url=self.url, timeout=TIMEOUT, transport=transport)

    def send(
        self,
        method: str,
        path: str,
        branch: str,
        *,
        body: Any = None,
        content: bytes | None = None,
        params: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
        key: str | None = None,
    ) -> Response:
        """Send a request and return the response.

        Args:
            method: the HTTP method.
            path: below the server's URL.
            branch: the branch the request refers to.
            body: a JSON value, or its text as bytes.
            content: bytes of protobuf, instead of a body.
            params: of the query string; None leaves one out.
            timeout: in seconds.
            key: an idempotency key: the server recognises a request it has already served.

        Raises:
            UmbelError: the server refused; with its status and message, of the error class it names.
            Unreachable: there is no connection, or no response within the timeout.
        """
        import httpx

        headers = _headers(branch, "application/json" if content is None else PROTOBUF, key)
        payload = content if content is not None else _json(body)
        declared = {name: _spelled(value) for name, value in (params or {}).items() if value is not None}
        try:
            answer = self._answer(method, path, headers, content=payload, params=declared, timeout=timeout)
        except httpx.HTTPError as error:
            hint = START if isinstance(error, httpx.ConnectError) else None
            raise Unreachable(f"{method} {self.url}{path} failed: {type(error).__name__} {error}", hint=hint) from error
        return _accepted(Response(answer.status_code, answer.content, dict(answer.headers), str(answer.url)))

    def _answer(self, method: str, path: str, headers: dict[str, str], **options: Any) -> httpx.Response:
        answer = self._http.request(method, self._at(path), headers=headers | self._proof(), **options)
        if answer.status_code == UNAUTHENTICATED and self._has_found_another():
            answer = self._http.request(method, self._at(path), headers=headers | self._proof(), **options)
        return answer

    def _at(self, path: str) -> str:
        """Return the URL of a path.

        A server found on this machine is requested at the address it listens on, even if another server shares its name.
        """
        return path if self._local is None else f"{self._local.url}{path}"

    def _proof(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _has_found_another(self) -> bool:
        """Look again for a server of this account; return True if the token differs.

        It may have been started since, or restarted with another token.
        """
        if not self._is_looked_for:
            return False
        before = self._token
        self._look()
        return bool(self._token) and self._token != before

    def _look(self) -> None:
        self._local = local_server(self.url)
        self._token = "" if self._local is None else bearer(token_of(self._local), self._local.token_file)

    def send_once(self, path: str, branch: str, body: Any) -> Response:
        """Post JSON with retries such that it takes effect once.

        The body is a value, or the text of one as bytes. It is retried if the server does not respond or is overloaded.

        Raises:
            Overloaded: the server has been overloaded for minutes.
            UmbelError: the server refused, or did not respond to any of several attempts.
        """
        key, pauses, patience = uuid.uuid4().hex, iter(PAUSES), OVERLOADED_PATIENCE
        while True:
            try:
                return self.send("POST", path, branch, body=body, key=key)
            except Overloaded as error:
                pause = min(LONGEST_PAUSE, error.retry_after) * (1 + random.random() / 4)
                patience -= pause
                if patience < 0:
                    raise
            except Transient:
                found = next(pauses, None)
                if found is None:
                    raise
                pause = found * (1 + random.random())
            time.sleep(pause)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _json(body: Any) -> bytes | str | None:
    if body is None or isinstance(body, bytes):
        return body
    try:  # an escape takes up to three times the bytes of the character, and a server limits those of a body
        return json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # of an unpaired surrogate, which the server refuses
        return json.dumps(body, allow_nan=False)


def refusal(response: Response) -> UmbelError:
    """Return the error of a refusing response.

    It has the class the response names, its status and its message.
    """
    try:
        said = response.json()
    except ValueError:
        said = None
    fields = said if isinstance(said, Mapping) else {}
    other = Unreachable if response.status_code in UNAVAILABLE else RequestFailed
    kind = Overloaded if response.status_code == 429 else _kinds().get(str(fields.get("code")), other)
    message = fields.get("message") or response.text or response.reason
    error = kind(f"the server answered {response.status_code}: {message}", hint=fields.get("hint"))
    if isinstance(error, Overloaded):
        error.retry_after = _seconds(response.headers.get("retry-after", ""))
    return error


def _seconds(declared: str) -> float:
    """Return the seconds of a `Retry-After` header.

    A default replaces one that is missing or a date.
    """
    return max(0.1, float(declared)) if declared.isascii() and declared.isdigit() else Overloaded.retry_after


@cache
def _kinds() -> Mapping[str, type[UmbelError]]:
    """Return the error classes by code, regardless of what the program has imported."""
    from umbel import errors, request_errors
    from umbel.api import extractor
    from umbel.definitions import selection
    from umbel.expr import errors as expressions
    from umbel.operators import transform
    from umbel.query import functions
    from umbel.state import port
    from umbel.types import dtype

    found = dict[str, type[UmbelError]]()
    for module in (errors, request_errors, expressions, dtype, port, selection, transform, extractor, functions):
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, UmbelError) and each.code != UmbelError.code:
                found.setdefault(each.code, each)
    return found


def _accepted(response: Response) -> Response:
    if not response.ok:
        raise refusal(response)
    return response


def _headers(branch: str, kind: str, key: str | None) -> dict[str, str]:
    headers = {BRANCH_HEADER: branch, "Content-Type": kind}
    return headers if key is None else headers | {KEY_HEADER: key}


def _spelled(value: Any) -> str | list[str]:
    if isinstance(value, bool):
        return "true" if value else "false"
    return [str(each) for each in value] if isinstance(value, list | tuple) else str(value)
