"""A storage that refuses some requests: a proxy before an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from threading import Thread

from tests.contracts.unconditional import PassingProxy
from tests.s3server import S3Server
from tests.scenarios.server import HOST

LIST, DELETE = "LIST", "DELETE"
"""Kinds of requests; others are named as their method."""


@dataclass
class Refusals:
    """What a storage refuses.

    Args:
        kinds: of requests.
        status: of the answer.
        code: in its body.
    """

    kinds: set[str] = field(default_factory=set)
    status: int = 403
    code: str = "AccessDenied"


class _Refusing(PassingProxy):
    """Passes requests on, apart from those refused."""

    refusals: Refusals

    def forward(self) -> None:
        kind = LIST if "list-type" in self.path else DELETE if self.path.endswith("?delete") else self.command
        if kind not in self.refusals.kinds:
            return super().forward()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = f"<Error><Code>{self.refusals.code}</Code><AWSAccessKeyId>planted</AWSAccessKeyId></Error>".encode()
        return self.answer(self.refusals.status, {}, b"" if self.command == "HEAD" else body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = forward


@contextmanager
def refusing(s3: S3Server) -> Iterator[tuple[str, Refusals]]:
    """Run a proxy for the length of a block; yields its URL, and what it refuses: nothing at first."""
    refusals = Refusals()
    handler = type("_Refuses", (_Refusing,), {"s3": s3, "refusals": refusals})
    proxy = ThreadingHTTPServer((HOST, 0), handler)
    Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield f"http://{HOST}:{proxy.server_port}", refusals
    finally:
        proxy.shutdown()
        proxy.server_close()
