"""HTTP connections with bounds on what a client can make large or slow.

These are heads, pipelined requests, and responses that it does not read. A client that stops sending before its request is
complete gets an error response.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from umbel.processes.open_files import ConnectionLimit

LONGEST_HEAD = 64 << 10
"""Bytes of the request line and the headers; data that arrives at once may exceed it."""
PATIENCE = 30.0
"""Seconds within which they must arrive."""
PIECE = 16 << 10
"""Bytes that are parsed at once; while requests of them wait for their turn, no more are."""
STALLED = 60.0
"""Seconds after which a connection whose client reads nothing of a response is cut off."""
_REFUSAL = "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_HEAD = b"HTTP/1.1 "


class JoinedWrites:
    """A transport that sends a response's head together with the start of its body.

    uvicorn writes them one after the other: two system calls, and a client that wakes up twice.

    Args:
        transport: sends the bytes.
        loop: its event loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self.is_closing = transport.is_closing  # asked for each response
        self._head = b""
        self._sends: asyncio.Handle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes; retain a head until the next write, or the event loop's next turn."""
        if self._sends is not None:
            self._sends.cancel()
            self._sends = None
            self._transport.write(self._head + data)
        elif data.startswith(_HEAD):
            self._head = data
            self._sends = self._loop.call_soon(self._send)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Send what is retained, then close."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._sends is not None:
            self._sends.cancel()
            self._sends = None
            self._transport.write(self._head)


class PipelineFlow(FlowControl):
    """Flow control that reads nothing while requests of a connection wait for their turn.

    uvicorn reads on with each response, however many requests wait.
    """

    is_full = False

    def fill(self) -> None:
        """Stop reading until `release`."""
        self.is_full = True
        self.pause_reading()

    def release(self) -> None:
        """Read on."""
        self.is_full = False
        self.resume_reading()

    def resume_reading(self) -> None:
        """Read on, unless requests wait."""
        if not self.is_full:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """A uvicorn connection with bounds on heads, pipelined requests and unread responses."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_in_head = False
        self._head = 0
        self._rest = memoryview(b"")
        self._limit: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for a request head; refuse a connection too many."""
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        self.flow = self._flow = PipelineFlow(self.transport)
        if connection_limit().admits(len(self.connections) - 1):
            self._wait()
        else:
            self._refuse("503 Service Unavailable")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process bytes; what is behind requests that wait is parsed after them."""
        if len(data) <= PIECE and not self._rest:
            self._parse(data)
        else:
            self._rest = memoryview(data if not self._rest else bytes(self._rest) + data)
            self._parse_rest()

    def _parse_rest(self) -> None:
        while self._rest and not self.pipeline and not self.transport.is_closing():
            piece, self._rest = self._rest[:PIECE], self._rest[PIECE:]
            self._parse(piece)

    def _parse(self, data: bytes | memoryview) -> None:
        """Parse bytes; refuse a head that is too large."""
        super().data_received(data)  # type: ignore[arg-type]
        if self.pipeline:
            self._flow.fill()
        if self._is_in_head:
            self._head += len(data)
            if self._head > LONGEST_HEAD:
                self._refuse("431 Request Header Fields Too Large")
            elif self._limit is None:
                self._wait()
        elif self._limit is None and self.timeout_keep_alive_task is None and self._is_answered:
            self._wait()

    @property
    def _is_answered(self) -> bool:
        """True if nothing is left to answer.

        Bytes that arrive then are the rest of a refused body, or line breaks.
        """
        cycle: RequestResponseCycle | None = self.cycle
        return not self.pipeline and (cycle is None or cycle.response_complete)

    def on_response_complete(self) -> None:
        """Start the next pipelined request; after the last, parse the bytes behind it."""
        super().on_response_complete()
        if self._flow.is_full and not self.pipeline and not self.transport.is_closing():
            self._flow.release()
            self._parse_rest()

    def pause_writing(self) -> None:
        """Start the timer for a client that reads nothing."""
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop that timer."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        super().resume_writing()

    def _watch(self, unread: int) -> None:
        self._stall = self.loop.call_later(STALLED, self._check_read, unread)

    def _check_read(self, unread: int) -> None:
        """Abort the connection unless bytes were read; a slow client may go on."""
        left = self.transport.get_write_buffer_size()
        if left < unread:
            self._watch(left)
        else:
            self._stall = None
            self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        """Close a silent connection, also one whose client has not read its last response."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Refuse incomplete requests at end of input; still answer the complete ones."""
        cycle: RequestResponseCycle | None = self.cycle
        is_open = cycle is not None and not cycle.response_complete
        if self._is_in_head or (cycle and is_open and cycle.more_body):
            self._refuse("400 Bad Request")
            return False
        if cycle and is_open:
            cycle.keep_alive = False
        return is_open

    def on_message_begin(self) -> None:
        """Note that a request begins."""
        super().on_message_begin()
        self._is_in_head, self._head = True, 0

    def on_headers_complete(self) -> None:
        """Note that the request's head is complete."""
        self._is_in_head = False
        if self._limit is not None:
            self._stop_waiting()
        super().on_headers_complete()

    def _wait(self) -> None:
        self._limit = self.loop.call_later(PATIENCE, self._refuse, "408 Request Timeout")

    def _stop_waiting(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _refuse(self, status: str) -> None:
        self._stop_waiting()
        self._is_in_head = False
        if not self.transport.is_closing():
            self.transport.write(_REFUSAL.format(status=status).encode())
            self.transport.close()


@cache
def connection_limit() -> ConnectionLimit:
    """Return the limit of connections of this process."""
    return ConnectionLimit(logging.getLogger("umbel.serve"))
