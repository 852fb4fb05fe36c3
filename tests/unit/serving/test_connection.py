"""The transport of a connection: which bytes are sent together, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from umbel.serving.connection import JoinedWrites

HEAD, BODY = b"HTTP/1.1 200 OK\r\n\r\n", b"{}"


class Recorded:
    """A transport that notes what it is told."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def write(self, data: bytes) -> None:
        self.seen.append(data)

    def close(self) -> None:
        self.seen.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.seen

    def get_extra_info(self, name: str) -> str:
        return name


def seen_after(work: Callable[[JoinedWrites], None], turns: int = 0) -> list[Any]:
    """Return what a transport has seen after some work and turns of the event loop."""

    async def run() -> list[Any]:
        inner = Recorded()
        work(JoinedWrites(inner, asyncio.get_running_loop()))  # type: ignore[arg-type]
        for _ in range(turns):
            await asyncio.sleep(0)
        return list(inner.seen)

    return asyncio.run(run())


def written(*parts: bytes) -> Callable[[JoinedWrites], None]:
    return lambda transport: [transport.write(each) for each in parts] and None


@pytest.mark.parametrize("turns", [0, 2])
def test_a_head_is_sent_with_the_body_that_follows(turns: int) -> None:
    assert seen_after(written(HEAD, BODY), turns) == [HEAD + BODY]
    assert seen_after(written(HEAD, BODY, HEAD, BODY), turns) == [HEAD + BODY, HEAD + BODY]


def test_a_head_alone_is_sent_in_the_next_turn() -> None:
    assert seen_after(written(HEAD)) == []
    assert seen_after(written(HEAD), 1) == [HEAD]
    assert seen_after(written(HEAD), 3) == [HEAD]


def test_parts_of_a_body_are_sent_as_they_come() -> None:
    assert seen_after(written(HEAD, BODY, BODY, BODY)) == [HEAD + BODY, BODY, BODY]


def test_nothing_is_lost_when_the_connection_is_closed() -> None:
    def work(transport: JoinedWrites) -> None:
        transport.write(HEAD)
        assert not transport.is_closing()
        transport.close()
        assert transport.is_closing()
        assert transport.get_extra_info("peername") == "peername"

    assert seen_after(work, 2) == [HEAD, "closed"]
