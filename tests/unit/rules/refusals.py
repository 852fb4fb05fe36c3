"""What an error has to say: its kind, the names involved, where the definition is, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

PLACE = re.compile(r"test_\w+\.py:\d+")


@contextmanager
def refused(kind: type[Exception], *words: object, at: bool = True, remedy: bool = True) -> Iterator[None]:
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
