"""A small HTTP server with shelves of items: pages to read, and changes to take, each key once."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = 7


class Shelves:
    """The server.

    Args:
        url: its address.
    """

    def __init__(self) -> None:
        self.items: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.rows: dict[int, int] = {}
        self.keys: set[str] = set()
        self.changes = self.requests = self.failures = 0
        self.url, self.forgets = "", False

    def put(self, shelf: str, *items: dict[str, Any]) -> None:
        """Put items on a shelf, which get increasing ids."""
        for each in items:
            self.items[shelf].append({"id": len(self.items[shelf]) + 1, **each})

    def take(self, key: str, messages: list[dict[str, Any]]) -> None:
        """Apply changes, unless their key is known."""
        if key in self.keys and not self.forgets:
            return
        self.keys.add(key)
        for each in messages:
            row, k = each.get("row", each.get("after")), each["key"]["k"]
            self.changes += 1
            if row is None:
                self.rows.pop(k, None)
            else:
                self.rows[k] = row["n"]


@contextmanager
def serving() -> Iterator[Shelves]:
    """Run a server for the length of a block."""
    shelves = Shelves()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shelves.requests += 1
            if shelves.failures:
                shelves.failures -= 1
                self._answer(503, [])
                return
            url = urlsplit(self.path)
            after = int(parse_qs(url.query).get("after", ["0"])[0])
            items = shelves.items[url.path.rpartition("/")[2]]
            self._answer(200, [each for each in items if each["id"] > after][:PAGE])

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            shelves.take(self.headers["Idempotency-Key"], json.loads(body))
            self._answer(200, [])

        def _answer(self, status: int, body: Any) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    shelves.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield shelves
    finally:
        server.shutdown()
        server.server_close()
