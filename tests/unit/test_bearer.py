"""Tokens of requests: whitespace around them is dropped, and no message shows one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from umbel.bearer import bearer
from umbel.client import Client
from umbel.errors import InvalidType, UmbelError
from umbel.formats.registry import registry

URL = "http://127.0.0.1:9"
BAD = ["s3c\nret s3cret", "s3cret\r\nX-Other: 1", "s3cret…", "\as3cret"]


@pytest.mark.parametrize("declared", ["token\n", " token", "token\r\n", "token"])
def test_whitespace_around_a_token_is_dropped(declared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        found.append(request.headers["authorization"])
        return httpx.Response(200, json={"branches": []})

    transport = httpx.MockTransport(answer)
    Client("http://server", declared, transport=transport).list_branches()
    monkeypatch.setenv("UMBEL_TOKEN", declared)
    Client("http://server", transport=transport).list_branches()
    Client("http://server", " \n", transport=transport).list_branches()
    assert found == ["Bearer token"] * 3


@pytest.mark.parametrize("token", BAD)
def test_no_message_shows_a_token(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def message(call: Callable[[], Any]) -> str:
        with pytest.raises(UmbelError, match="the token has characters that no header can have") as caught:
            call()
        return str(caught.value)

    texts = [
        message(lambda: Client(URL, token).list_branches()),
        message(lambda: registry(URL, None, token, "")._get("/subjects")),
    ]
    monkeypatch.setenv("UMBEL_TOKEN", token)
    texts.append(message(lambda: Client(URL).list_branches()))
    assert not any("s3cret" in text for text in texts)


def test_other_values_are_no_tokens() -> None:
    with pytest.raises(InvalidType, match="Client: the token must be text, got bytes"):
        Client("http://server", b"token")  # type: ignore[arg-type]
    assert bearer("", "Client") == ""
