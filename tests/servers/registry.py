"""A schema registry with the interface of Confluent's, in a thread of the tests."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from tests.scenarios.server import HOST, free_port


@dataclass
class SchemaRegistry:
    """A registry.

    Args:
        port: where it listens.
        authorization: the header that it demands; none if empty.
    """

    port: int = field(default_factory=free_port)
    authorization: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    is_down: bool = False
    _schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    _subjects: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def add(self, schema: str | bytes, subject: str = "", references: Any = ()) -> int:
        """Add a schema, serialized Protobuf if bytes; return its id."""
        number = len(self._schemas) + 1
        text = base64.b64encode(schema).decode() if isinstance(schema, bytes) else schema
        self._schemas[number] = {
            "schema": text,
            "references": list(references),
            "serialized": isinstance(schema, bytes),
        }
        if subject:
            self._subjects[subject, 1 + sum(each == subject for each, _ in self._subjects)] = number
        return number

    def answer(self, path: str, authorization: str) -> tuple[int, dict[str, Any]]:
        """Return status and body of a request."""
        self.requests[path] += 1
        address, _, query = path.partition("?")
        parts = address.strip("/").split("/")
        if self.is_down:
            return 500, {"error_code": 50001, "message": "the store is down"}
        if self.authorization and authorization != self.authorization:
            return 401, {"error_code": 40101, "message": "Unauthorized"}
        if parts[:2] == ["schemas", "ids"]:
            number, code = int(parts[2]), 40403
        else:
            number, code = self._subjects.get((unquote(parts[1]), int(parts[3])), 0), 40401
        found = self._schemas.get(number)
        if found is None:
            return 404, {"error_code": code, "message": "not found"}
        schema = found["schema"] if query == "format=serialized" or not found["serialized"] else 'syntax = "proto3";'
        return 200, {"schema": schema, "references": found["references"]}


@contextmanager
def running(**options: Any) -> Iterator[SchemaRegistry]:
    """Run a registry for the length of a block."""
    registry = SchemaRegistry(**options)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path, self.headers.get("Authorization", ""))
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((HOST, registry.port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
