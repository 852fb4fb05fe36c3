"""Responses of client calls, with the interface of `requests`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from umbel.errors import RuntimeFailure


@dataclass(frozen=True, slots=True)
class Response:
    """The response of a server.

    Args:
        status_code: the HTTP status.
        content: the body.
        headers: by lower-case name.
        url: the requested URL.
    """

    status_code: int
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    url: str = ""

    @classmethod
    def of(cls, status_code: int, body: Any) -> Response:
        """Return a response with a JSON value as its body."""
        return cls(status_code, json.dumps(body).encode(), {"content-type": "application/json"})

    @property
    def ok(self) -> bool:
        """Return True if the request succeeded."""
        return self.status_code < 400

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode(errors="replace")

    @property
    def reason(self) -> str:
        """The reason phrase of the status."""
        from http import HTTPStatus

        return HTTPStatus(self.status_code).phrase

    def json(self) -> Any:
        """Return the body, parsed as JSON."""
        return json.loads(self.content)

    def raise_for_status(self) -> None:
        """Raise RuntimeFault unless the request succeeded."""
        if not self.ok:
            raise RuntimeFailure(f"{self.status_code} {self.reason}: {self.text}")

    def _repr_html_(self) -> str:
        from umbel.api.notebook import of_response

        return of_response(self)

    def __bool__(self) -> bool:
        return self.ok
