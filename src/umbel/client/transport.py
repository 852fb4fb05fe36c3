"""Requests to a server, and what its answers mean."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from umbel.client.response import Response
from umbel.errors import InvalidType, RuntimeFault, Transient, UmbelError

if TYPE_CHECKING:
    import httpx

BRANCH_HEADER = "X-UMBEL-BRANCH"
PROTOBUF = "application/x-protobuf"
KEY_HEADER = "Idempotency-Key"
PAUSES = (0.1, 0.5, 2.0)
"""Seconds to wait before an attempt is repeated."""
UNAVAILABLE = frozenset({502, 503, 504})
"""What a server, or a proxy before it, answers when it may serve the same request later."""
TIMEOUT = 600.0
"""Seconds to wait for a connection or an answer."""


class RequestFailed(RuntimeFault):
    """The server refused a request."""

    code = "request-failed"


class Unreachable(Transient):
    """The server did not answer."""

    code = "unreachable"


class Transport:
    """Sends requests to one server. Threads may share it.

    Args:
        url: of the server.
        token: proves who asks.
        transport: carries requests instead of the network, for tests.
    """

    def __init__(self, url: Any, token: str, transport: httpx.BaseTransport | None = None) -> None:
        import httpx

        if not isinstance(url, str) or not url:
            raise InvalidType(
                f"Client: the url must be text, got {url!r}", hint='Client("http://localhost:8425", token)'
            )
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT, transport=transport)

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
        """Send a request and return the answer.

        Args:
            method: of HTTP.
            path: below the server's URL.
            branch: the branch it is about.
            body: a JSON value.
            content: bytes of protobuf, instead of a body.
            params: of the query string; None leaves one out.
            timeout: in seconds.
            key: tells the server that a request is one it may have served already.

        Raises:
            UmbelError: the server refused; with status and message, of the kind the server names.
            Unreachable: no connection, or no answer in time.
        """
        import httpx

        headers = _headers(branch, "application/json" if content is None else PROTOBUF, key)
        payload = content if content is not None else None if body is None else json.dumps(body, allow_nan=False)
        stated = {name: _spelled(value) for name, value in (params or {}).items() if value is not None}
        try:
            answer = self._http.request(method, path, content=payload, params=stated, headers=headers, timeout=timeout)
        except httpx.HTTPError as error:
            raise Unreachable(f"{method} {self.url}{path} failed: {type(error).__name__} {error}") from error
        return _accepted(Response(answer.status_code, answer.content, dict(answer.headers), str(answer.url)))

    def send_once(self, path: str, branch: str, body: Any) -> Response:
        """Post a JSON value, again if the server does not answer, such that it takes effect once.

        Raises:
            UmbelError: the server refused, or did not answer any of several attempts.
        """
        key = uuid.uuid4().hex
        for pause in PAUSES:
            try:
                return self.send("POST", path, branch, body=body, key=key)
            except Transient:
                time.sleep(pause * (1 + random.random()))
        return self.send("POST", path, branch, body=body, key=key)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def refusal(response: Response) -> UmbelError:
    """Return the error a refusing answer stands for: of the kind it names, with its status and message."""
    try:
        said = response.json()
    except ValueError:
        said = None
    fields = said if isinstance(said, Mapping) else {}
    other = Unreachable if response.status_code in UNAVAILABLE else RequestFailed
    kind = _kinds().get(str(fields.get("code")), other)
    message = fields.get("message") or response.text or response.reason
    return kind(f"the server answered {response.status_code}: {message}", hint=fields.get("hint"))


def _kinds() -> dict[str, type[UmbelError]]:
    return {kind.code: kind for kind in _subclasses(UmbelError)}


def _subclasses(kind: type[UmbelError]) -> Iterator[type[UmbelError]]:
    for each in kind.__subclasses__():
        yield from _subclasses(each)
        yield each


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
