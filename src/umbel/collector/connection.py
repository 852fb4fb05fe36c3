"""HTTP connections of a collector: httptools on asyncio, without a framework.

A request is answered when its events are on disk; requests that a client sends without waiting are answered in their order.
Everything that a client can make large or slow is bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

import httptools

from umbel.collector.responses import HttpResponse
from umbel.processes.open_files import ConnectionLimit

LONGEST_HEAD = 64 << 10
"""Bytes of a head, of trailers, or of the frame of a chunk; data that arrives at once may exceed it."""
PATIENCE = 60.0
"""Seconds within which a request must arrive, and a response be read."""
IDLE = 75.0
"""Seconds a connection may be silent before it is closed; load balancers give up after 60."""
LINGER, MOST_DISCARDED = 2.0, 64 << 20
"""Seconds and bytes that are read and discarded after a request was refused early: a reset would cost the client the answer."""
SMALL = 4 << 10
"""Bytes of a part of a body from which on it is an object of its own: each takes some dozens of bytes more."""
MOST_PENDING = 64
"""Requests without an answer from which on a connection is not read."""
SINGLE = frozenset(
    {b"content-type", b"content-length", b"content-encoding", b"idempotency-key", b"authorization", b"x-api-key"}
)


class HttpRequest:
    """A request that arrives.

    Args:
        connection: where it arrives.
    """

    __slots__ = (
        *("_connection", "begun", "discarded", "headers", "keeps_alive", "method", "parts", "response", "size"),
        "target",
    )

    def __init__(self, connection: CollectorConnection) -> None:
        self._connection = connection
        self.method = self.target = b""
        self.headers: dict[bytes, bytes] = {}
        self.parts: list[bytes | bytearray] = []
        self.size = self.discarded = 0
        self.keeps_alive = True
        self.begun = time.perf_counter()
        self.response: HttpResponse | None = None

    @property
    def body(self) -> bytes:
        """The bytes of the body."""
        first = self.parts[0] if self.parts else b""
        return first if len(self.parts) == 1 and isinstance(first, bytes) else b"".join(self.parts)

    def add(self, part: bytes) -> None:
        """Add a part of the body; small ones, such as of tiny chunks, are joined."""
        last = self.parts[-1] if self.parts else None
        if last is None or len(part) >= SMALL:
            self.parts.append(part)
        elif isinstance(last, bytearray):
            last += part
        else:
            self.parts.append(bytearray(part))

    def respond(self, response: HttpResponse) -> None:
        """Answer it, after those before it on its connection."""
        if self.response is None:
            self.response = response
            self._connection.answered(self)


class RequestHandler(Protocol):
    """Answers the requests of connections."""

    is_draining: bool
    """True while the process ends: no connection is reused."""
    connections: set[CollectorConnection]
    """The open connections."""
    limit: ConnectionLimit
    """How many there may be."""

    def admit(self, request: HttpRequest) -> HttpResponse | None:
        """Return a refusal for a request whose head is complete, None for none."""

    def receive(self, request: HttpRequest, size: int) -> HttpResponse | None:
        """Note bytes of a body; return a refusal if they are too many."""

    def take(self, request: HttpRequest) -> None:
        """Process a complete request; it is answered later."""

    def refused(self, status: int, message: str) -> HttpResponse:
        """Return the response for no HTTP, an incomplete request, or a connection too many."""

    def release(self, request: HttpRequest) -> None:
        """Note that a request is answered, or will not be."""


class CollectorConnection(asyncio.Protocol):
    """A connection.

    Args:
        site: answers its requests.
    """

    def __init__(self, site: RequestHandler) -> None:
        self._site = site
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._arriving: HttpRequest | None = None
        self._pending: deque[HttpRequest] = deque()
        self._is_in_head = self._is_closing = self._is_blocked = self._is_paused = False
        self._lingers = self._owes_permission = False
        self._steps = self._unused = self._discarded = 0
        self._since = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the connection; close it if there are too many."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._site.limit.admits(len(self._site.connections)):
            transport.write(self._site.refused(503, "too many connections are open").packed())
            self._end()
        self._site.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; what was accepted is stored all the same."""
        del exc
        self._transport = None
        self._site.connections.discard(self)
        for each in (*self._pending, *([self._arriving] if self._arriving else [])):
            self._site.release(each)
        self._pending.clear()
        self._arriving = None

    def data_received(self, data: bytes) -> None:
        """Process bytes."""
        if self._is_closing:
            self._discard(len(data))
            return
        arriving, steps = self._arriving, self._steps
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "this server speaks HTTP/1.1 only")
        except httptools.HttpParserError as error:
            self._refuse(400, f"this is no HTTP request: {error}")
        self._bound(len(data), self._steps - steps, begins=self._arriving is not arriving)

    def _bound(self, size: int, steps: int, *, begins: bool) -> None:
        """Refuse a request with long headers, trailers or frames of chunks.

        The parser holds them until they end.

        Args:
            size: of the data that has arrived.
            steps: the requests that it began or ended, and the parts of bodies in it.
            begins: whether a request began with it that has not ended.
        """
        if self._arriving is None or steps > begins:
            self._unused = 0
            return
        self._unused = size if begins else self._unused + size
        if self._unused > LONGEST_HEAD:
            self._refuse(431, f"the head of a request, and its trailers, may have {LONGEST_HEAD:,} bytes")

    def eof_received(self) -> bool:
        """Refuse an incomplete request at the end of input; still answer the complete ones."""
        if self._arriving is not None:
            self._refuse(400, "the request is incomplete")
        self._is_closing, self._lingers = True, False
        return bool(self._pending)

    def pause_writing(self) -> None:
        """Read no more requests while the client reads no responses."""
        self._is_blocked, self._since = True, time.monotonic()
        self._pace()

    def resume_writing(self) -> None:
        """Read on."""
        self._is_blocked, self._since = False, time.monotonic()
        self._pace()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._arriving = HttpRequest(self)
        self._steps += 1
        self._is_in_head, self._since = True, time.monotonic()

    def on_url(self, url: bytes) -> None:
        """Note the target, or a part of it."""
        if self._arriving is not None:
            self._arriving.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header; those behind a chunked body are ignored."""
        request = self._arriving
        if request is None or not self._is_in_head:
            return
        name = name.lower()
        if name in SINGLE and name in request.headers:
            self._refuse(400, f"the header {name.decode('latin-1')} is there twice")
        request.headers[name] = value

    def on_headers_complete(self) -> None:
        """Admit the request, or refuse it before its body is read."""
        self._is_in_head = False
        request = self._arriving
        if request is None or self._is_closing:
            return
        request.method = self._parser.get_method()
        request.keeps_alive = self._parser.should_keep_alive() and self._parser.get_http_version() != "1.0"
        if request.headers.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked":
            self._refuse(400, "a transfer encoding other than chunked; compress the body and say Content-Encoding")
            return
        response = self._site.admit(request)
        if response is not None:
            self._answer_early(request, response)
        elif request.headers.get(b"expect", b"").lower() == b"100-continue":
            self._owes_permission = True
            self._permit()

    def _permit(self) -> None:
        """Let the client send its body, after the answers that are due."""
        if self._owes_permission and not self._pending and not self._is_closing:
            self._owes_permission = False
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Note a part of the body."""
        self._steps, self._owes_permission = self._steps + 1, False
        request = self._arriving
        if request is None or self._is_closing:
            return
        if request.response is not None:
            request.discarded += len(body)
            if request.discarded > 1 << 20:  # of an admitted size, and nobody will read it
                self._end()
            return
        response = self._site.receive(request, len(body))
        if response is None:
            request.add(body)
        else:
            self._answer_early(request, response)

    def on_message_complete(self) -> None:
        """Process the request."""
        request, self._arriving = self._arriving, None
        self._steps, self._owes_permission = self._steps + 1, False
        self._since = time.monotonic()
        if request is None or self._is_closing:
            return
        self._pending.append(request)
        if request.response is not None:
            self.answered(request)
            return
        if len(self._pending) >= MOST_PENDING:
            self._pace()
        self._site.take(request)

    def answered(self, request: HttpRequest) -> None:
        """Send the response of a request, once those before it are sent."""
        pending, found = self._pending, []
        if request is self._arriving or not pending:
            return
        while pending and (response := pending[0].response) is not None:
            first = pending.popleft()
            if not first.keeps_alive or self._site.is_draining:
                response.ends = True
            self._site.release(first)
            found.append(response.packed(has_body=first.method != b"HEAD"))
            if response.ends:
                self._is_closing = True
                pending.clear()
        if found:
            self._write(found[0] if len(found) == 1 else b"".join(found))
        self._permit()
        if self._is_paused:
            self._pace()
        if self._is_closing and not pending:
            self._end()

    def end_if_idle(self) -> None:
        """Close the connection unless a request is being answered."""
        if self._arriving is None and not self._pending:
            self._lingers = False
            self._end()

    def check(self, now: float) -> None:
        """Close the connection if its client is too slow, or silent for too long.

        Args:
            now: monotonic seconds.
        """
        silent = now - self._since
        if self._arriving is not None and silent > PATIENCE:
            self._refuse(408, f"the request did not arrive within {PATIENCE:.0f} seconds")
        elif self._is_blocked and silent > PATIENCE and self._transport is not None:
            self._transport.abort()
        elif not self._pending and silent > (LINGER if self._lingers else IDLE):
            self._lingers = False
            self._end()

    def _answer_early(self, request: HttpRequest, response: HttpResponse) -> None:
        """Answer a request before its body; close the connection where that may be long."""
        request.parts.clear()
        request.response = response
        length = request.headers.get(b"content-length", b"0" if b"transfer-encoding" not in request.headers else b"")
        if b"expect" in request.headers or not length.isdigit() or len(length) > 6:
            response.ends = True
        if response.ends:
            self._arriving, self._lingers = None, True
            self._pending.append(request)
            self._is_closing = True
            self.answered(request)

    def _refuse(self, status: int, message: str) -> None:
        """Answer 4xx after the responses that are due, and close."""
        if self._is_closing:
            return
        request = self._arriving or HttpRequest(self)
        self._arriving, self._is_in_head = None, False
        request.parts.clear()
        response = request.response or self._site.refused(status, message)  # it may have been refused before its body
        response.ends, request.response = True, response
        self._pending.append(request)
        self._is_closing = self._lingers = True
        self.answered(request)

    def _end(self) -> None:
        self._is_closing = True
        if self._transport is None:
            return
        if self._lingers and self._transport.can_write_eof():
            self._since = time.monotonic()
            self._transport.write_eof()
        else:
            self._transport.close()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > MOST_DISCARDED and self._transport is not None:
            self._transport.abort()

    def _pace(self) -> None:
        transport, is_paused = self._transport, self._is_blocked or len(self._pending) >= MOST_PENDING
        if transport is not None and is_paused != self._is_paused and not transport.is_closing():
            transport.pause_reading() if is_paused else transport.resume_reading()
            self._is_paused = is_paused

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
