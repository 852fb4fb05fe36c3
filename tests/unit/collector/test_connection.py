"""Connections of a collector whose clients are slow, silent, or read nothing."""

from __future__ import annotations

import time
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from umbel.collector.connection import (
    IDLE,
    LINGER,
    LONGEST_HEAD,
    MOST_DISCARDED,
    MOST_PENDING,
    PATIENCE,
    CollectorConnection,
    HttpRequest,
)
from umbel.collector.responses import HttpResponse


class Handler:
    """Takes requests, and answers them when the test says so."""

    def __init__(self) -> None:
        self.is_draining = False
        self.connections: set[CollectorConnection] = set()
        self.limit: Any = SimpleNamespace(admits=lambda others: others < 1)
        self.taken: list[HttpRequest] = []
        self.released = 0
        self.refusal: HttpResponse | None = None

    def admit(self, request: HttpRequest) -> HttpResponse | None:
        return self.refusal

    def receive(self, request: HttpRequest, size: int) -> HttpResponse | None:
        return None

    def take(self, request: HttpRequest) -> None:
        self.taken.append(request)

    def refused(self, status: int, message: str) -> HttpResponse:
        return HttpResponse(status, message.encode())

    def release(self, request: HttpRequest) -> None:
        self.released += 1
        assert request.size == 0


class Wire:
    """A transport that notes what happens to it."""

    def __init__(self) -> None:
        self.sent, self.events = b"", list[str]()

    def write(self, data: bytes) -> None:
        self.sent += data

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return lambda: self.events.append(name)


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def connection(handler: Handler, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> CollectorConnection:
    monkeypatch.setattr("umbel.collector.connection.asyncio.Transport", Wire)
    found = CollectorConnection(handler)
    found.connection_made(wire)  # type: ignore[arg-type]
    return found


REQUEST = b"POST /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"


def test_a_request_that_does_not_arrive_ends_its_connection(connection: CollectorConnection, wire: Wire) -> None:
    connection.data_received(REQUEST[:30])
    now = time.monotonic()
    connection.check(now + PATIENCE - 5)
    assert wire.sent == b""
    connection.check(now + PATIENCE + 1)
    assert wire.sent.startswith(b"HTTP/1.1 408")
    assert wire.events == ["write_eof"]
    connection.check(time.monotonic() + LINGER + 1)
    assert wire.events == ["write_eof", "close"]


def test_a_body_byte_by_byte_gains_no_time(connection: CollectorConnection, wire: Wire) -> None:
    now = time.monotonic()
    for n in range(len(REQUEST) - 1):
        connection.data_received(REQUEST[n : n + 1])
    connection.check(now + PATIENCE + 1)
    assert wire.sent.startswith(b"HTTP/1.1 408")


def test_a_silent_connection_is_closed_and_a_waiting_one_is_not(
    connection: CollectorConnection, handler: Handler, wire: Wire
) -> None:
    connection.data_received(REQUEST)
    connection.check(time.monotonic() + IDLE + 1)
    assert wire.events == []
    handler.taken[0].respond(HttpResponse(200, b"{}"))
    connection.check(time.monotonic() + IDLE - 5)
    assert wire.events == []
    connection.check(time.monotonic() + IDLE + 1)
    assert wire.events == ["close"]


def test_a_client_that_reads_nothing_is_not_read_and_then_cut_off(connection: CollectorConnection, wire: Wire) -> None:
    connection.pause_writing()
    assert wire.events == ["pause_reading"]
    connection.resume_writing()
    connection.pause_writing()
    connection.check(time.monotonic() + PATIENCE + 1)
    assert wire.events == ["pause_reading", "resume_reading", "pause_reading", "abort"]


def test_a_client_is_not_read_while_many_of_its_requests_wait(
    connection: CollectorConnection, handler: Handler, wire: Wire
) -> None:
    connection.data_received(REQUEST * MOST_PENDING)
    assert wire.events == ["pause_reading"]
    for each in reversed(handler.taken):
        each.respond(HttpResponse(200, b"%d" % handler.taken.index(each)))
    assert wire.events == ["pause_reading", "resume_reading"]
    assert [int(each.rpartition(b"\n")[2]) for each in wire.sent.split(b"HTTP/1.1 ")[1:]] == list(range(MOST_PENDING))
    assert handler.released == MOST_PENDING


def test_what_follows_a_refused_upload_is_discarded_up_to_a_bound(
    connection: CollectorConnection, handler: Handler, wire: Wire
) -> None:
    handler.refusal = HttpResponse(413, b"")
    connection.data_received(b"POST /x HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n")
    assert wire.sent.startswith(b"HTTP/1.1 413")
    assert wire.events == ["write_eof"]
    for _ in range(2 + (MOST_DISCARDED >> 20)):
        connection.data_received(bytes(1 << 20))
    assert handler.taken == []
    assert "abort" in wire.events


def test_a_refused_small_request_leaves_its_connection_open(
    connection: CollectorConnection, handler: Handler, wire: Wire
) -> None:
    handler.refusal = HttpResponse(429, b"")
    connection.data_received(REQUEST)
    assert wire.sent.startswith(b"HTTP/1.1 429")
    handler.refusal = None
    connection.data_received(REQUEST)
    handler.taken[0].respond(HttpResponse(200, b"{}"))
    assert wire.sent.count(b"HTTP/1.1") == 2
    assert wire.events == []


def test_a_lost_connection_releases_what_had_arrived(connection: CollectorConnection, handler: Handler) -> None:
    connection.data_received(REQUEST * 3 + REQUEST[:40])
    connection.connection_lost(None)
    assert handler.released == 4
    for each in handler.taken:
        each.respond(HttpResponse(200, b"{}"))  # stored, and nobody is there
    assert handler.connections == set()


def test_a_drain_ends_connections_after_their_answers(
    connection: CollectorConnection, handler: Handler, wire: Wire
) -> None:
    connection.data_received(REQUEST)
    handler.is_draining = True
    connection.end_if_idle()
    assert wire.events == []
    handler.taken[0].respond(HttpResponse(200, b"{}"))
    assert b"connection: close\r\n" in wire.sent
    assert wire.events == ["close"]


def test_bytes_after_the_last_request_are_ignored(
    connection: CollectorConnection, handler: Handler, wire: Wire
) -> None:
    connection.data_received(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    handler.taken[0].respond(HttpResponse(200, b"{}"))
    connection.data_received(REQUEST)
    assert len(handler.taken) == 1
    assert wire.events == ["close"]


def test_a_refused_request_whose_body_is_cut_is_answered(
    connection: CollectorConnection, handler: Handler, wire: Wire
) -> None:
    handler.refusal = HttpResponse(401, b"")
    connection.data_received(REQUEST[:-1])
    assert wire.sent == b""
    assert not connection.eof_received()
    assert wire.sent.startswith(b"HTTP/1.1 401")
    assert (wire.sent.count(b"HTTP/1.1"), wire.events) == (1, ["write_eof"])


def test_a_refused_request_whose_body_does_not_come_ends_its_connection(
    connection: CollectorConnection, handler: Handler, wire: Wire
) -> None:
    handler.refusal = HttpResponse(401, b"")
    connection.data_received(REQUEST[:-1])
    connection.check(time.monotonic() + PATIENCE + 1)
    assert wire.sent.startswith(b"HTTP/1.1 401")
    connection.check(time.monotonic() + LINGER + 1)
    assert wire.events == ["write_eof", "close"]


PADDED = REQUEST.replace(b"\r\n\r\n", b"\r\nX: " + b"y" * 500 + b"\r\n\r\n")


def test_many_requests_that_arrive_at_once_have_no_long_head(
    connection: CollectorConnection, handler: Handler, wire: Wire
) -> None:
    data = PADDED * (3 * LONGEST_HEAD // len(PADDED)) + PADDED[:200]
    connection.data_received(data)
    connection.data_received(PADDED[200:])
    assert len(handler.taken) == data.count(b"POST")
    assert wire.sent == b""


CHUNKED = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"GET /x HTTP/1.1\r\nX: ", id="a header"),
        pytest.param(b"GET /", id="a target"),
        pytest.param(CHUNKED + b"0\r\nX: ", id="a trailer"),
        pytest.param(CHUNKED + b"2;x=", id="an extension of a chunk"),
        pytest.param(PADDED + b"GET /x HTTP/1.1\r\nX: ", id="a header behind a request"),
    ],
)
def test_what_never_ends_is_refused(
    connection: CollectorConnection, wire: Wire, handler: Handler, start: bytes
) -> None:
    connection.data_received(start)
    for _ in range(2 + LONGEST_HEAD // 10_000):
        connection.data_received(b"y" * 10_000)
    for each in handler.taken:
        each.respond(HttpResponse(200, b"{}"))
    assert wire.sent.count(b"HTTP/1.1 431") == 1
    assert "write_eof" in wire.events


def test_small_chunks_are_no_long_head(connection: CollectorConnection, handler: Handler) -> None:
    connection.data_received(CHUNKED)
    for _ in range(LONGEST_HEAD // 4):
        connection.data_received(b"1;abc\r\n \r\n")
    connection.data_received(b"0\r\n\r\n")
    assert len(handler.taken) == 1


def test_a_connection_too_many_is_refused(connection: CollectorConnection, handler: Handler) -> None:
    connection.data_received(b"GET /x HTTP/1.1\r\n\r\n")
    other = Wire()
    CollectorConnection(handler).connection_made(other)  # type: ignore[arg-type]
    assert other.sent.startswith(b"HTTP/1.1 503 Service Unavailable")
    assert other.events == ["close"]
    assert len(handler.taken) == 1


def test_a_body_of_tiny_chunks_takes_little_more_memory_than_its_bytes(
    connection: CollectorConnection, handler: Handler
) -> None:
    connection.data_received(b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    tracemalloc.start()
    try:
        for chunk in (b"2\r\nab\r\n" * 50_000, b"2000\r\n%b\r\n" % (b"c" * 8192), b"1\r\nd\r\n"):
            connection.data_received(chunk)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    connection.data_received(b"0\r\n\r\n")
    assert handler.taken[0].body == b"ab" * 50_000 + b"c" * 8192 + b"d"
    assert used < 400_000  # each chunk as an object of its own took 56 bytes


def test_a_head_request_is_answered_without_body(connection: CollectorConnection, handler: Handler, wire: Wire) -> None:
    connection.data_received(b"HEAD /healthz HTTP/1.1\r\n\r\n")
    handler.taken[0].respond(HttpResponse(200, b"{}"))
    assert wire.sent.endswith(b"content-length: 2\r\n\r\n")


def test_a_client_of_http_1_0_waits_for_the_end(connection: CollectorConnection, handler: Handler, wire: Wire) -> None:
    connection.data_received(REQUEST.replace(b"1.1\r\n", b"1.0\r\nConnection: keep-alive\r\n"))
    handler.taken[0].respond(HttpResponse(200, b"{}"))
    assert b"connection: close\r\n" in wire.sent
    assert wire.events == ["close"]


@pytest.mark.parametrize("encoding", [b"gzip, chunked", b"chunked, chunked"])
def test_other_transfer_encodings_are_refused(
    connection: CollectorConnection, handler: Handler, wire: Wire, encoding: bytes
) -> None:
    connection.data_received(CHUNKED.replace(b"chunked", encoding) + b"0\r\n\r\n")
    assert wire.sent.startswith(b"HTTP/1.1 400")
    assert handler.taken == []


def test_permission_follows_the_answers_that_are_due(
    connection: CollectorConnection, handler: Handler, wire: Wire
) -> None:
    connection.data_received(REQUEST + REQUEST[:-2].replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
    assert wire.sent == b""
    handler.taken[0].respond(HttpResponse(200, b"{}"))
    assert wire.sent.endswith(b"{}HTTP/1.1 100 Continue\r\n\r\n")
    connection.data_received(b"{}")
    handler.taken[1].respond(HttpResponse(200, b"{}"))
    assert wire.sent.count(b"100 Continue") == 1
    assert wire.sent.endswith(b"{}")
