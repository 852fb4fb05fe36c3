"""Definitions that are refused: functions that make them, with the kind of error and what its text must carry."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from umbel.errors import UmbelError

PLACE = re.compile(r"(test_\w+|streams|cases)\.py:\d+")
Definition = Callable[[], Any]


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
    with pytest.raises(error) as caught:
        define()
    assert isinstance(caught.value, UmbelError)
    found = str(caught.value)
    missing = [text for text in texts if text not in found]
    assert not missing, found
    assert PLACE.search(found), f"it does not say where: {found}"
    assert "hint:" in found, f"it does not say what to do: {found}"
