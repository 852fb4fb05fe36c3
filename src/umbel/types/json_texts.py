"""Encoding of JSON values of any depth."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import orjson


class _Text(str):
    """A piece of JSON text."""

    __slots__ = ()


def json_text(value: Any) -> bytes:
    """Encode a JSON value of any depth, with integers of any size."""
    with suppress(TypeError):
        return orjson.dumps(value)
    with suppress(RecursionError):
        return json.dumps(value, separators=(",", ":")).encode()
    return "".join(_pieces(value)).encode()


def _pieces(value: Any) -> Iterator[str]:
    """Yield the pieces of the text of a JSON value."""
    waiting = [value]  # no recursion: parsers nest deeper than encoders go
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            members = [(_Text(f"{json.dumps(name)}:"), inner) for name, inner in each.items()]
            waiting += reversed([_Text("{"), *_separated(members), _Text("}")])
        elif isinstance(each, list):
            waiting += reversed([_Text("["), *_separated([(inner,) for inner in each]), _Text("]")])
        else:
            yield each if isinstance(each, _Text) else json.dumps(each)


def _separated(members: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    for position, each in enumerate(members):
        yield from (_Text(","), *each) if position else each
