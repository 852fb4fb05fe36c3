"""Definitions that are refused: the kind of the error, the names in it, where the definition is and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from umbel.errors import UmbelError

PLACE = re.compile(r"(test_\w+|streams|shop|refusals)\.py:\d+")
Definition = Callable[[], Any]


@contextmanager
def refusal(kind: type[Exception], *words: object, at: bool = True, remedy: bool = True) -> Iterator[None]:
    """Expect an error.

    Args:
        kind: its class.
        words: what its text says.
        at: whether it says where, as `file:line` of the definition.
        remedy: whether it says what to do.
    """
    caught: Exception | None = None
    try:
        yield
    except Exception as error:
        caught = error
    assert caught is not None, f"nothing was raised; expected {kind.__name__} saying {words}"
    text = str(caught)
    lacks = [word for word in map(str, words) if word not in text]
    if at and not PLACE.search(text):
        lacks.append("<place>")
    if remedy and "hint:" not in text:
        lacks.append("<remedy>")
    if not isinstance(caught, kind):
        raise AssertionError(f"{type(caught).__name__}, not {kind.__name__}: {text}") from caught
    assert not lacks, f"lacks {lacks}: {text}"


class Cases:
    """Collects definitions that are refused."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def __call__(self, error: type[Exception], *texts: str) -> Callable[[Definition], Definition]:
        """Note that a definition raises `error` with all of `texts` in its message."""

        def note(define: Definition) -> Definition:
            self.found.append(pytest.param(define, error, texts, id=define.__name__))
            return define

        return note

    def add(self, name: str, define: Definition, error: type[Exception], *texts: str) -> None:
        """Note a definition that is no function of its own."""
        self.found.append(pytest.param(define, error, texts, id=name))


def check_refused(define: Definition, error: type[Exception], texts: tuple[str, ...]) -> None:
    """Check that a definition is refused as noted, with where it is and what to do."""
    with refusal(error, *texts):
        try:
            define()
        except Exception as caught:
            assert isinstance(caught, UmbelError), repr(caught)  # noqa: PT017
            raise
