"""A REST catalog of Iceberg tables, as far as reading one goes: configuration, tokens, and the metadata of a table."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from pyiceberg.exceptions import NoSuchTableError

TOKEN, CREDENTIAL = "tok-4711", "client:hidden"
SILENCE = 120.0
"""Seconds for which a request that is not answered stays open."""


class RestCatalog:
    """A catalog that another one is behind.

    Args:
        catalog: of PyIceberg; has the tables.
    """

    def __init__(self, catalog: Any) -> None:
        self.catalog, self.requests = catalog, list[str]()
        self.failure: tuple[int, str] | None = None
        """A status and a type of error that all requests for tables are answered with."""
        self.is_silent = threading.Event()
        """Set while no request is answered."""
        self.uri = ""

    def answer(self, method: str, path: str, token: str, body: str) -> tuple[int, Any]:
        """Return the status and the body of an answer."""
        self.requests.append(f"{method} {path}")
        if path == "/v1/oauth/tokens":
            form = {name: values[0] for name, values in parse_qs(body).items()}
            if f"{form.get('client_id')}:{form.get('client_secret')}" != CREDENTIAL:
                return 401, {"error": "invalid_client", "error_description": "credentials are wrong"}
            return 200, {"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600}
        if token != f"Bearer {TOKEN}":
            return 401, _error(401, "NotAuthorizedException", "the token is wrong")
        if path == "/v1/config":
            return 200, {"defaults": {}, "overrides": {"prefix": "main"}}
        if self.failure is not None:
            return self.failure[0], _error(*self.failure, "it fails")
        *_, namespace, _, name = path.split("/")
        try:
            table = self.catalog.load_table(f"{namespace}.{name}")
        except NoSuchTableError:
            return 404, _error(404, "NoSuchTableException", f"Table does not exist: {namespace}.{name}")
        metadata = json.loads(table.metadata.model_dump_json())
        return 200, {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _error(code: int, kind: str, message: str) -> Any:
    return {"error": {"code": code, "type": kind, "message": message}}


@contextmanager
def running(catalog: Any) -> Iterator[RestCatalog]:
    """Run a REST catalog for a block."""
    rest, closed = RestCatalog(catalog), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            status, content = rest.answer(
                self.command, self.path.partition("?")[0], self.headers.get("Authorization", ""), body
            )
            if rest.is_silent.is_set():
                self.close_connection = not closed.wait(SILENCE)
                return
            encoded = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_POST = do_HEAD = answer

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    rest.uri = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield rest
    finally:
        closed.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def silent(first: bytes) -> Iterator[str]:
    """Accept connections for a block, send some bytes on each, and no more; yield the address.

    Args:
        first: what is sent once a request came.
    """
    opened = list[socket.socket]()

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            opened.append(connection)
            if connection.recv(1 << 16):
                connection.sendall(first)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in opened:
                each.close()
