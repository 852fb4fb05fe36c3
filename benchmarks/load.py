"""A load generator: requests over some connections, on time or as fast as they are answered.

python -m benchmarks.load PORT FILE SECONDS CONNECTIONS [RATE]

FILE has a JSON body per line; they are posted to /api/v1/query in turn. With RATE, requests per second, each is due at an
instant of its own and its latency counts from then, whether or not it could be sent on time; else a connection sends the next
one when it has an answer. The last line printed is the report, as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections import deque
from itertools import count
from pathlib import Path

HOST = "127.0.0.1"
HEAD = "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"


class Connection(asyncio.Protocol):
    """One connection: a request at a time.

    Args:
        generator: whose.
    """

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._generator.is_free(self)

    def send(self, request: bytes, due: float) -> None:
        """Send a request."""
        assert self._transport is not None
        self._due = due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer; when it is whole, note how long it took."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or len(body) < _length(head):
            return
        self._generator.answered(time.perf_counter() - self._due, head.startswith(b"HTTP/1.1 200"))
        self._received = b""
        self._generator.is_free(self)


class Generator:
    """Sends requests until the time is up.

    Args:
        requests: sent in turn.
        seconds: for how long.
        rate: requests per second; None for as many as are answered.
    """

    def __init__(self, requests: list[bytes], seconds: float, rate: float | None) -> None:
        self._requests, self._rate = requests, rate
        self._next = count()
        self._free: deque[Connection] = deque()
        self._due: deque[float] = deque()
        self._end = time.perf_counter() + seconds
        self.latencies: list[float] = []
        self.failures = 0

    def is_free(self, connection: Connection) -> None:
        """Give a connection something to do."""
        if self._due:
            connection.send(self._request(), self._due.popleft())
        elif self._rate is None and time.perf_counter() < self._end:
            connection.send(self._request(), time.perf_counter())
        else:
            self._free.append(connection)

    def answered(self, seconds: float, is_good: bool) -> None:
        """Note an answer."""
        self.latencies.append(seconds)
        self.failures += not is_good

    async def run(self) -> None:
        """Send until the time is up, then wait for the answers still due."""
        if self._rate:
            await self._pace(self._rate)
        await asyncio.sleep(self._end - time.perf_counter() + 0.5)

    async def _pace(self, rate: float) -> None:
        begun = time.perf_counter()
        for number in count():
            due = begun + number / rate
            if due >= self._end:
                return
            if (left := due - time.perf_counter()) > 0:
                await asyncio.sleep(left)
            if self._free:
                self._free.popleft().send(self._request(), due)
            else:
                self._due.append(due)

    def _request(self) -> bytes:
        return self._requests[next(self._next) % len(self._requests)]


def _length(head: bytes) -> int:
    start = head.lower().index(b"content-length:") + 15
    return int(head[start:].split(b"\r\n", 1)[0])


def encoded(path: str, body: bytes) -> bytes:
    """Return a request as it goes over the wire."""
    return HEAD.format(path=path, length=len(body)).encode() + body


async def generate(
    port: int, requests: list[bytes], seconds: float, connections: int, rate: float | None
) -> dict[str, float]:
    """Send requests; return how it went.

    Args:
        port: of the server.
        requests: sent in turn.
        seconds: for how long.
        connections: how many.
        rate: requests per second; None for as many as are answered.
    """
    generator = Generator(requests, seconds, rate)
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: Connection(generator), HOST, port)
    gc.disable()
    begun = time.perf_counter()
    await generator.run()
    took = time.perf_counter() - begun - 0.5
    found = sorted(generator.latencies)
    return {
        "requests": len(found),
        "failures": generator.failures,
        "per_second": len(found) / took,
        "median": found[len(found) // 2] * 1e3,
        "p99": found[int(len(found) * 0.99)] * 1e3,
        "worst": found[-1] * 1e3,
    }


def main(port: str, file: str, seconds: str, connections: str, rate: str = "") -> None:
    """Run as a program; see the module."""
    bodies = Path(file).read_bytes().splitlines()
    requests = [encoded("/api/v1/query", body) for body in bodies]
    told = asyncio.run(generate(int(port), requests, float(seconds), int(connections), float(rate) if rate else None))
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
