"""The bodies of requests: text is UTF-8, which takes less than escapes."""

from __future__ import annotations

import json

from umbel.client.connection import _json


def test_text_is_not_escaped() -> None:
    body = {"data": {"ü": ["漢字", "\u2028", "😀"]}}
    sent = _json(body)
    assert isinstance(sent, bytes)
    assert (json.loads(sent), b"\\u" in sent) == (body, False)
    assert len(sent) == len(json.dumps(body, ensure_ascii=False).encode())


def test_half_a_character_is_left_to_the_server_to_refuse() -> None:
    sent = _json({"data": ["\ud800"]})
    assert sent == '{"data": ["\\ud800"]}'
