"""A storage that takes puts whose name is taken: a proxy before an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

from tests.s3server import S3Server
from tests.scenarios.server import HOST

CONDITION = "if-none-match"


class PassingProxy(BaseHTTPRequestHandler):
    """Passes requests on, with or without the condition of a put."""

    protocol_version = "HTTP/1.1"
    s3: S3Server
    ignores: bool | None = None
    """Whether it ignores the condition of a put, or refuses such puts; passed on when None."""

    def log_message(self, *_: object) -> None:
        pass

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if CONDITION in self.headers and self.ignores is not None:
            if not self.ignores:
                return self.answer(501, {}, b"<Error><Code>NotImplemented</Code></Error>")
            # The condition is signed and cannot be left out: the name is free instead.
            (self.s3.folder / urlsplit(self.path).path.lstrip("/")).unlink(missing_ok=True)
        with closing(HTTPConnection(urlsplit(self.s3.url).netloc)) as connection:
            connection.request(self.command, self.path, body or None, dict(self.headers.items()))
            found = connection.getresponse()
            return self.answer(found.status, dict(found.getheaders()), found.read())

    def answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        headers = {name.title(): value for name, value in headers.items()}
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            if name not in ("Connection", "Transfer-Encoding"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = forward


@contextmanager
def unconditional(s3: S3Server, *, ignores: bool) -> Iterator[str]:
    """Run a proxy for the length of a block; yields its URL.

    Args:
        s3: the server.
        ignores: whether it ignores the condition of a put; else it refuses such puts.
    """
    proxy = ThreadingHTTPServer((HOST, 0), type("_Passing", (PassingProxy,), {"s3": s3, "ignores": ignores}))
    thread = Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{proxy.server_port}"
    finally:
        proxy.shutdown()
        proxy.server_close()
