"""HTTP connections with bounds on request heads: their size, and the time they take.

A client that stops sending before its request is complete gets an error response.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

LONGEST_HEAD = 64 << 10
"""Bytes of the request line and the headers; data that arrives at once may exceed it."""
PATIENCE = 30.0
"""Seconds within which they must arrive."""
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


class Connection(HttpToolsProtocol):
    """A uvicorn connection that refuses request heads too large or too slow."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_in_head = False
        self._head = 0
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for a request head."""
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process bytes; refuse a head that is too large."""
        super().data_received(data)
        if self._is_in_head:
            self._head += len(data)
            if self._head > LONGEST_HEAD:
                self._refuse("431 Request Header Fields Too Large")
            elif self._limit is None:
                self._wait()

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
