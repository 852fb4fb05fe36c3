"""How request bodies are read: at once where they have arrived, else within a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from umbel.errors import Overloaded
from umbel.request_errors import TooLarge, TooSlow
from umbel.serving import requests
from umbel.serving.headers import branch_of, parse_headers
from umbel.serving.requests import BodyRoom, body_of

GONE = {"type": "http.disconnect"}


def part(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def read(*messages: dict[str, Any] | None, headers: Any = (), room: BodyRoom | None = None) -> bytes:
    """Read a body that arrives in messages, each of which may have to be waited for; None is one that never arrives."""

    async def run() -> bytes:
        coming = asyncio.Queue[dict[str, Any] | None]()
        for each in messages[:1]:
            coming.put_nowait(each)

        async def receive() -> dict[str, Any]:
            found = await coming.get()
            return await asyncio.Future() if found is None else found

        async def send_later() -> None:
            for each in messages[1:]:
                await asyncio.sleep(0)
                coming.put_nowait(each)

        request = Request({"type": "http", "headers": list(headers)}, receive)
        parse_headers(request)
        later = asyncio.ensure_future(send_later())
        try:
            return await body_of(request, room or BodyRoom())
        finally:
            await later

    return asyncio.run(run())


def test_a_body_that_has_arrived_needs_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests.asyncio, "timeout", None)
    assert read(part(b"abc")) == b"abc"
    assert read(part(b"")) == b""


def test_parts_are_put_together() -> None:
    assert read(part(b"a", more=True), part(b"", more=True), part(b"bc")) == b"abc"


@pytest.mark.parametrize("messages", [(None,), (part(b"a", more=True), None)])
def test_a_body_that_does_not_arrive_is_refused_in_time(
    messages: tuple[dict[str, Any] | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PATIENCE", 0.01)
    with pytest.raises(TooSlow):
        read(*messages)


def test_nothing_is_lost_of_a_body_that_is_waited_for() -> None:
    async def run() -> bytes:
        coming = asyncio.Queue[dict[str, Any]]()
        request = Request({"type": "http", "headers": []}, coming.get)
        parse_headers(request)
        reading = asyncio.ensure_future(body_of(request, BodyRoom()))
        for each in (part(b"a", more=True), part(b"b")):
            await asyncio.sleep(0)
            coming.put_nowait(each)
        return await reading

    assert asyncio.run(run()) == b"ab"


@pytest.mark.parametrize("messages", [(GONE,), (part(b"a", more=True), GONE)])
def test_a_client_that_goes_is_noticed(messages: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(ClientDisconnect):
        read(*messages)


def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_BODY", 2)
    assert read(part(b"a", more=True), part(b"b")) == b"ab"
    for messages in ((part(b"abc"),), (part(b"ab", more=True), part(b"c"))):
        with pytest.raises(TooLarge):
            read(*messages)
    with pytest.raises(TooLarge):
        read(None, headers=[(b"content-length", b"3")])


def test_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_BODY", 4)
    monkeypatch.setattr(requests, "MOST_BUFFERED", 6)
    room, longer = BodyRoom(), [(b"content-length", b"4")]
    parts = part(b"ab", more=True), part(b"cd")
    assert read(*parts, headers=longer, room=room) == b"abcd"
    with pytest.raises(Overloaded):  # before it is read: four bytes are not answered yet
        read(None, headers=longer, room=room)
    assert read(part(b"abcd"), room=room) == b"abcd"  # it has arrived
    assert read(*parts, room=room) == b"abcd"  # that does not say how long it is
    with pytest.raises(Overloaded):
        read(*parts, room=room)


def test_of_a_repeated_branch_the_first_counts() -> None:
    request = Request({"type": "http", "headers": [(b"x-umbel-branch", b"dev"), (b"x-umbel-branch", b"main")]})
    parse_headers(request)
    assert branch_of(request) == "dev"
