"""A load generator: requests over some connections, on time or as fast as they are answered.

python -m benchmarks.load PORT FILE SECONDS CONNECTIONS [RATE [PATH [ARRIVALS]]]

FILE has a JSON body per line; they are posted to PATH in turn, or the path is requested by GET where FILE is "-". With RATE,
requests per second, each is due at an instant of its own and its latency counts from then, whether or not it could be sent on
time; else a connection sends the next one when it has an answer. ARRIVALS are `even`, or `random`: independent of each other, as
those of many users are. The last line printed is the report, as JSON; `late` in it is how late the generator itself was at most,
99 times of 100, while a connection was free.

One thread and plain sockets: what it takes from the machine, and how late it wakes, is not the server's. `select` wakes in
microseconds where `epoll` rounds up to milliseconds.
"""

from __future__ import annotations

import gc
import json
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from itertools import count, cycle, takewhile
from pathlib import Path
from random import Random

HOST = "127.0.0.1"
QUERY = "/api/v1/query"
HEAD = "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
PATIENCE = 10.0
"""Seconds to wait for the answers still due."""
SEED = 5


class Connection:
    """One connection: a request at a time.

    Args:
        port: of the server.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self.due = 0.0

    def fileno(self) -> int:
        """Return what `select` waits for."""
        return self._socket.fileno()

    def send(self, request: bytes, due: float) -> None:
        """Send a request."""
        self.due = due
        self._socket.sendall(request)

    def received(self) -> bytes | None:
        """Take what has come of an answer; return its first line when it is whole."""
        part = self._socket.recv(1 << 20)
        if not part:
            raise ConnectionError("the server has closed a connection")
        self._received += part
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or len(body) < _length(head):
            return None
        self._received = b""
        return head[: head.index(b"\r\n")]


class Generator:
    """Sends requests, then waits for the answers still due.

    Args:
        connections: over which.
        requests: sent in turn.
        seconds: for how long.
    """

    def __init__(self, connections: list[Connection], requests: list[bytes], seconds: float) -> None:
        self._all, self._free = connections, deque(connections)
        self._requests, self._seconds = cycle(requests), seconds
        self.latencies: list[float] = []
        self.late: list[float] = []
        self.failures = 0

    def pace(self, instants: Iterator[float]) -> None:
        """Send a request at each instant, in seconds from now."""
        begun, waiting = time.perf_counter(), deque[float]()
        coming = (begun + instant for instant in takewhile(lambda each: each < self._seconds, instants))
        due = next(coming, None)
        while due is not None:
            while due is not None and (late := time.perf_counter() - due) >= 0:
                if self._free and not waiting:
                    self.late.append(late)
                waiting.append(due)
                due = next(coming, None)
            self._send(waiting)
            self._answers(0.0 if due is None else due - time.perf_counter())
        self._finish(waiting)

    def flood(self) -> None:
        """Send a request whenever one is answered."""
        end = time.perf_counter() + self._seconds
        while (now := time.perf_counter()) < end:
            self._send(deque([now] * len(self._free)))
            self._answers(end - now)
        self._finish(deque())

    def _finish(self, waiting: deque[float]) -> None:
        deadline = time.perf_counter() + PATIENCE
        while waiting or len(self._free) < len(self._all):
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{len(waiting) + len(self._all) - len(self._free)} requests were not answered")
            self._send(waiting)
            self._answers(1.0)

    def _send(self, waiting: deque[float]) -> None:
        while waiting and self._free:
            self._free.popleft().send(next(self._requests), waiting.popleft())

    def _answers(self, within: float) -> None:
        """Note what is answered, as soon as anything is, but wait no longer than some seconds."""
        for connection in select.select(self._all, (), (), max(0.0, within))[0]:
            status = connection.received()
            if status is not None:
                self.latencies.append(time.perf_counter() - connection.due)
                self.failures += not status.startswith(b"HTTP/1.1 200")
                self._free.append(connection)


def _length(head: bytes) -> int:
    start = head.lower().index(b"content-length:") + 15
    return int(head[start:].split(b"\r\n", 1)[0])


def arrivals(kind: str, rate: float) -> Iterator[float]:
    """Yield the seconds at which requests are due: evenly, or at random with as many in the mean."""
    if kind == "even":
        yield from (number / rate for number in count())
        return
    random, instant = Random(SEED), 0.0
    while True:
        instant += random.expovariate(rate)
        yield instant


def encoded(file: str, path: str) -> list[bytes]:
    """Return requests as they go over the wire."""
    if file == "-":
        return [f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()]
    bodies = Path(file).read_bytes().splitlines()
    return [HEAD.format(path=path, length=len(body)).encode() + body for body in bodies]


def share(numbers: list[float], of: float) -> float:
    """Return what a share of seconds does not exceed, in ms; 0 of none."""
    return sorted(numbers)[min(len(numbers) - 1, int(len(numbers) * of))] * 1e3 if numbers else 0.0


def main(
    port: str, file: str, seconds: str, connections: str, rate: str = "", path: str = QUERY, kind: str = "even"
) -> None:
    """Run as a program; see the module."""
    opened = [Connection(int(port)) for _ in range(int(connections))]
    generator = Generator(opened, encoded(file, path), float(seconds))
    gc.disable()
    begun = time.perf_counter()
    if rate:
        generator.pace(arrivals(kind, float(rate)))
    else:
        generator.flood()
    took = time.perf_counter() - begun
    found = generator.latencies
    report = {
        "requests": len(found),
        "failures": generator.failures,
        "per_second": len(found) / took,
        "median": share(found, 0.5),
        "p99": share(found, 0.99),
        "worst": share(found, 1.0),
        "late": share(generator.late, 0.99),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
