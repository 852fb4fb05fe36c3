"""Connections of a server that are many, send many requests at once, or read no response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from umbel.serving import connection
from umbel.serving.connection import PIECE, Connection

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]
LARGE = b"x" * (16 << 20)


class Site:
    """Answers each request with its body, or with much more; notes how many requests wait meanwhile."""

    def __init__(self) -> None:
        self.state = ServerState()
        self.waiting: list[int] = []

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.waiting += [len(each.pipeline) for each in self.state.connections]
        body, is_whole = b"", scope["path"] == "/refused"
        while not is_whole:
            message = await receive()
            body, is_whole = body + message["body"], not message["more_body"]
        body = LARGE if scope["path"] == "/large" else body
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def talk(self, talk: Talk) -> Any:
        async def run() -> Any:
            config = Config(self.app, http=Connection, interface="asgi3", lifespan="off", log_config=None)
            config.load()
            server = await asyncio.get_running_loop().create_server(
                lambda: Connection(config=config, server_state=self.state, app_state={}), "127.0.0.1", 0
            )
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                async with asyncio.timeout(20):
                    return await talk(reader, writer)
            finally:
                writer.transport.abort()
                server.close()

        return asyncio.run(run())


def posted(path: str, body: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)


@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_requests_sent_at_once_are_answered_in_order_and_not_many_wait(size: int) -> None:
    bodies = [b"%d" % number * size for number in range(1, 1 + max(100, 30_000 // size))][:1000]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[bytes]:
        writer.write(b"".join(posted("/", each) for each in bodies))
        found = []
        for _ in bodies:
            head = await reader.readuntil(b"\r\n\r\n")
            found.append(await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r")[0])))
        return found

    site = Site()
    assert site.talk(talk) == bodies
    assert max(site.waiting) <= PIECE // len(posted("/", b"1"))


def test_a_client_that_reads_nothing_of_its_response_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALLED", 0.05)
    site = Site()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(posted("/large"))
        await reader.readexactly(1)
        while site.state.connections:
            await asyncio.sleep(0.01)

    site.talk(talk)


def test_a_client_that_reads_slowly_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALLED", 0.1)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(posted("/large"))
        await reader.readuntil(b"\r\n\r\n")
        left = len(LARGE)
        while left:
            left -= len(await reader.readexactly(min(left, len(LARGE) // 16)))
            await asyncio.sleep(0.02)
        return left

    assert Site().talk(talk) == 0


def test_a_silent_client_with_an_unread_response_is_cut_off() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(posted("/large"))
        await reader.readexactly(1)
        (found,) = site.state.connections
        while not found.transport.get_write_buffer_size():  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
        found.timeout_keep_alive_handler()  # type: ignore[union-attr]
        while site.state.connections:
            await asyncio.sleep(0.01)

    site = Site()
    site.talk(talk)


def test_a_connection_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = SimpleNamespace(admits=lambda others: others < 1)
    monkeypatch.setattr(connection, "connection_limit", lambda: limit)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bytes, bytes]:
        writer.write(posted("/", b"1"))
        answered = await reader.readuntil(b"\r\n\r\n1")
        other, _ = await asyncio.open_connection(*writer.get_extra_info("peername"))
        return answered, await other.read()

    answered, refused = Site().talk(talk)
    assert answered.startswith(b"HTTP/1.1 200 OK")
    assert refused.startswith(b"HTTP/1.1 503 Service Unavailable")


@pytest.mark.parametrize(("path", "more"), [("/refused", b"x"), ("/", b"\r\n")])
def test_what_is_sent_after_a_response_retains_no_connection(
    monkeypatch: pytest.MonkeyPatch, path: str, more: bytes
) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.1)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(posted(path, b"1" * 1000) if path == "/" else posted(path, b"1" * 1000)[:-900])
        await reader.readuntil(b"\r\n\r\n")
        while site.state.connections:
            writer.write(more)
            await asyncio.sleep(0.01)

    site = Site()
    site.talk(talk)


def test_a_connection_is_used_again_after_a_refused_body() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        request = posted("/refused", b"1" * 1000)
        writer.write(request[:-900])
        await reader.readuntil(b"\r\n\r\n")
        writer.write(request[-900:])
        writer.write(posted("/", b"2"))
        await reader.readuntil(b"\r\n\r\n")
        return await reader.readexactly(1)

    assert Site().talk(talk) == b"2"
