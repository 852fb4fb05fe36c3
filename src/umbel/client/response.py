"""Responses of client calls, usable like those of `requests`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from umbel.errors import RuntimeFault


@dataclass(frozen=True, slots=True)
class Response:
    """What a server answered.

    Args:
        status_code: of HTTP.
        content: the body.
        headers: by lower-case name.
        url: what was asked.
    """

    status_code: int
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    url: str = ""

    @classmethod
    def of(cls, status_code: int, body: Any) -> Response:
        """Return a response that carries a JSON value."""
        return cls(status_code, json.dumps(body).encode(), {"content-type": "application/json"})

    @property
    def ok(self) -> bool:
        """Whether the request was served."""
        return self.status_code < 400

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode(errors="replace")

    @property
    def reason(self) -> str:
        """The status in words."""
        from http import HTTPStatus

        return HTTPStatus(self.status_code).phrase

    def json(self) -> Any:
        """Return the body, read as JSON."""
        return json.loads(self.content)

    def raise_for_status(self) -> None:
        """Raise RuntimeFault unless the request was served."""
        if not self.ok:
            raise RuntimeFault(f"{self.status_code} {self.reason}: {self.text}")

    def __bool__(self) -> bool:
        return self.ok
