"""The ways to name columns: `op("a", "b")`, `op(["a", "b"])`, `op(columns=["a", "b"])`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umbel.errors import InvalidValue


def names_of(positional: Sequence[Any], keyword: Any, owner: str, word: str = "columns") -> tuple[str, ...]:
    """Return the column names an operator was called with, in any of the ways.

    Raises:
        InvalidValue: both ways at once, or something that is not a name.
    """
    if positional and keyword is not None:
        raise InvalidValue(
            f"{owner}: give columns either as positional arguments or as {word}=, not both",
            hint=f'("a", "b"), or ({word}=["a", "b"])',
        )
    given: Any = positional if keyword is None else (keyword,)
    if len(given) == 1 and not isinstance(given[0], str) and isinstance(given[0], Sequence):
        given = given[0]
    names = tuple(str(name) for name in given)
    wrong = [name for name in given if not isinstance(name, str) and not hasattr(name, "dataset_name")]
    if wrong:
        raise InvalidValue(
            f"{owner}: column names must be strings, found {wrong[0]!r}", hint="names of columns as text"
        )
    return names
