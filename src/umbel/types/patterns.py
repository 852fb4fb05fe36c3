"""Regular expressions on texts from outside, in a time that has a limit.

Python's engine tries one way after the other and cannot be interrupted: some patterns have exponentially many ways through a text
of thirty characters, and a row with it would stop the process. So it decides only where the ways are few, by the pattern and the
length of the text. All others are decided by the engine of the package `regex`, which has a limit of time and lets other threads
run meanwhile. It reads patterns as Python does, but that combining marks, as of Hindi, are letters of words for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

MOST_WAYS = 1_000_000
"""The ways through a text that Python's engine may try: some 10 ms."""
BRIEF = 10
"""A repetition of up to so many is not counted as one of any length."""
SECONDS, LEAST = 1.0, 0.005
"""The limit of a text, and that of one after many others have reached it."""
SECONDS_OF_CHARACTER = 1e-6
"""What is added to both for each character."""
NOTED = 1000
"""Texts that are remembered for having taken too long."""


class Pattern:
    """A regular expression.

    Args:
        text: the pattern.
        is_search: whether it may match anywhere, as of `re.search`, and not from the start only, as of `re.match`.

    Raises:
        re.error: it is no regular expression.
    """

    def __init__(self, text: str, *, is_search: bool = False) -> None:
        self._text, self._is_search = text, is_search
        compiled = re.compile(text)
        self._plain: Callable[[str], Any] = compiled.search if is_search else compiled.match
        self._slow = dict[str, None]()

    def matches(self, values: Iterable[str]) -> list[bool]:
        """Return whether each text matches; one that takes too long does not."""
        timeouts, found = 0, list[bool]()
        for value in values:
            if self._is_fast(value):
                found.append(self._plain(value) is not None)
                continue
            seconds = max(LEAST, SECONDS / 2 ** min(timeouts, 20)) + SECONDS_OF_CHARACTER * len(value)
            try:
                found.append(self._limited(value, timeout=seconds, concurrent=True) is not None)
            except TimeoutError:
                timeouts += 1
                self._note(value)
                found.append(False)
        return found

    def is_slow(self, value: str) -> bool:
        """Return whether a text has taken too long lately."""
        return value in self._slow

    def _note(self, value: str) -> None:
        if len(self._slow) >= NOTED:
            self._slow.pop(next(iter(self._slow)), None)
        self._slow[value] = None

    def _is_fast(self, value: str) -> bool:
        return self._degree is not None and (len(value) + 1) ** self._degree <= MOST_WAYS

    @cached_property
    def _degree(self) -> int | None:
        """The power of a text's length that bounds its ways; None for none."""
        _, degree = _ways(parser.parse(self._text))
        return None if degree is None else degree + self._is_search

    @cached_property
    def _limited(self) -> Callable[..., Any]:
        import regex

        compiled = regex.compile(self._text)
        limited: Callable[..., Any] = compiled.search if self._is_search else compiled.match
        return limited


@lru_cache(maxsize=1000)
def pattern_of(text: str, *, is_search: bool = False) -> Pattern:
    """Return a pattern, compiled once."""
    return Pattern(text, is_search=is_search)


def _ways(items: Iterable[Any]) -> tuple[int, int | None]:
    """Return the number of ways through parts of a pattern.

    And the power of the text's length that multiplies it, None for none.
    """
    ways, degree = 1, 0
    for kind, arguments in items:
        own, more = _ways_of(kind, arguments)
        ways *= own
        if more is None or ways > MOST_WAYS:
            return ways, None
        degree += more
    return ways, degree


def _ways_of(kind: Any, arguments: Any) -> tuple[int, int | None]:
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
        return _repeated(*arguments)
    if kind is kinds.BRANCH:
        found = [_ways(each) for each in arguments[1]]
        degrees = [degree for _, degree in found if degree is not None]
        return sum(ways for ways, _ in found), max(degrees) if len(degrees) == len(found) else None
    if kind is kinds.SUBPATTERN:
        return _ways(arguments[-1])
    if kind is kinds.ATOMIC_GROUP:
        return _ways(arguments)
    if kind in (kinds.ASSERT, kinds.ASSERT_NOT):
        return _ways(arguments[1])
    if kind in (kinds.GROUPREF, kinds.GROUPREF_EXISTS):
        return 1, None
    return 1, 0


def _repeated(least: int, most: int, items: Any) -> tuple[int, int | None]:
    ways, degree = _ways(items)
    if degree is None or (most > BRIEF and (degree or ways > 1)):
        return ways, None
    if most > BRIEF:
        return 1, int(least != most)
    return sum(ways**count for count in range(least, most + 1)), degree * most
