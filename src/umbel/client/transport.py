"""Requests to a server, and what its answers mean."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from umbel.client.response import Response
from umbel.errors import RuntimeFault, Transient, UmbelError

if TYPE_CHECKING:
    import httpx

BRANCH_HEADER = "X-UMBEL-BRANCH"
PROTOBUF = "application/x-protobuf"
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

    def __init__(self, url: str, token: str, transport: httpx.BaseTransport | None = None) -> None:
        import httpx

        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
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

        Raises:
            UmbelError: the server refused; with status and message, of the kind the server names.
            Unreachable: no connection, or no answer in time.
        """
        import httpx

        headers = {BRANCH_HEADER: branch, "Content-Type": "application/json" if content is None else PROTOBUF}
        payload = content if content is not None else None if body is None else json.dumps(body, allow_nan=False)
        stated = {name: _spelled(value) for name, value in (params or {}).items() if value is not None}
        try:
            answer = self._http.request(method, path, content=payload, params=stated, headers=headers, timeout=timeout)
        except httpx.HTTPError as error:
            raise Unreachable(f"{method} {self.url}{path} failed: {type(error).__name__} {error}") from error
        response = Response(answer.status_code, answer.content, dict(answer.headers), str(answer.url))
        if not response.ok:
            raise refusal(response)
        return response

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
    kind = _kinds().get(str(fields.get("code")), RequestFailed)
    message = fields.get("message") or response.text or response.reason
    return kind(f"the server answered {response.status_code}: {message}", hint=fields.get("hint"))


def _kinds() -> dict[str, type[UmbelError]]:
    return {kind.code: kind for kind in _subclasses(UmbelError)}


def _subclasses(kind: type[UmbelError]) -> Iterator[type[UmbelError]]:
    for each in kind.__subclasses__():
        yield from _subclasses(each)
        yield each


def _spelled(value: Any) -> str | list[str]:
    if isinstance(value, bool):
        return "true" if value else "false"
    return [str(each) for each in value] if isinstance(value, list | tuple) else str(value)
