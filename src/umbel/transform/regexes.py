"""Regular expressions of Python, translated to those of Polars for ASCII texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from umbel.transform.native import NotNative

_CATEGORIES = {
    codes.CATEGORY_DIGIT: "0-9",
    codes.CATEGORY_WORD: "0-9A-Za-z_",
    codes.CATEGORY_SPACE: r"\x09-\x0d\x1c-\x20",
    codes.CATEGORY_NOT_DIGIT: r"\x00-/:-\x7f",
    codes.CATEGORY_NOT_WORD: r"\x00-/:-@\x5b-\x5e\x60\x7b-\x7f",
    codes.CATEGORY_NOT_SPACE: r"\x00-\x08\x0e-\x1b\x21-\x7f",
}
_PLACES = {
    codes.AT_BEGINNING: r"\A",
    codes.AT_BEGINNING_STRING: r"\A",
    codes.AT_END_STRING: r"\z",
    codes.AT_BOUNDARY: r"(?-u:\b)",
}
_OTHER_PLACES = {
    codes.AT_END: "$, which matches before a line end, too",
    codes.AT_NON_BOUNDARY: r"\B, which matches no empty text",
}


def checked(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern.

    Raises:
        ValueError: it is no regular expression.
    """
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None


def is_never_empty(pattern: str) -> bool:
    """Return True if a pattern matches no empty text."""
    return bool(parser.parse(pattern).getwidth()[0] > 0)


@lru_cache(maxsize=256)
def rust(pattern: str) -> str:
    r"""Return the pattern in Rust's syntax; both find the same in texts of ASCII characters.

    >>> rust('/p/(\\d+)')
    '\\x2f\\x70\\x2f([0-9]+)'

    Raises:
        NotNative: it has flags, references, look-around, `$`, `\B`, or groups inside of repetitions.
    """
    parsed = parser.parse(pattern)
    if parsed.state.flags & ~re.UNICODE:
        raise NotNative("a regular expression with flags")
    return _sequence(parsed, repeated=False)


def _sequence(items: Iterable[tuple[Any, Any]], *, repeated: bool) -> str:
    return "".join(_item(code, value, repeated=repeated) for code, value in items)


def _item(code: Any, value: Any, *, repeated: bool) -> str:
    write = _WRITERS.get(code)
    if write is None:
        raise NotNative(f"a regular expression with {str(code).lower()}")
    return write(value, repeated)


def _literal(value: int, _: bool = False) -> str:
    if value > 127:
        raise NotNative("a regular expression with characters beyond ASCII")
    return f"\\x{value:02x}"


def _set(items: list[tuple[Any, Any]], _: bool) -> str:
    negated = items[0][0] is codes.NEGATE
    return f"[{'^' if negated else ''}{''.join(_member(*each) for each in items[negated:])}]"


def _member(code: Any, value: Any) -> str:
    if code is codes.LITERAL:
        return _literal(value)
    if code is codes.RANGE:
        return f"{_literal(value[0])}-{_literal(value[1])}"
    if code is codes.CATEGORY and value in _CATEGORIES:
        return _CATEGORIES[value]
    raise NotNative(f"a regular expression with {str(code).lower()}")


def _place(value: Any, _: bool) -> str:
    if value not in _PLACES:
        raise NotNative(f"a regular expression with {_OTHER_PLACES.get(value, str(value).lower())}")
    return _PLACES[value]


def _group(value: tuple[int | None, int, int, Any], repeated: bool) -> str:
    number, added, removed, items = value
    if added or removed or (repeated and number is not None):
        raise NotNative("a regular expression with flags, or with groups inside of repetitions")
    return f"({'' if number is not None else '?:'}{_sequence(items, repeated=repeated)})"


def _branch(value: tuple[None, list[Any]], repeated: bool) -> str:
    return f"(?:{'|'.join(_sequence(each, repeated=repeated) for each in value[1])})"


def _repeat(lazy: str) -> Callable[[Any, bool], str]:
    def write(value: tuple[Any, Any, Any], repeated: bool) -> str:
        low, high, items = value
        most = "" if high is codes.MAXREPEAT else int(high)
        if max(int(low), 0 if high is codes.MAXREPEAT else int(high)) > 200:
            raise NotNative("a regular expression with more than 200 repetitions")
        if (int(low), most) != (0, 1) and parser.SubPattern(items.state, items.data).getwidth()[0] == 0:
            raise NotNative("a regular expression with repetitions of what may be empty")
        inner = _sequence(items, repeated=repeated or most != 1)
        plain = len(items) == 1 and items[0][0] in {codes.LITERAL, codes.IN, codes.ANY, codes.NOT_LITERAL}
        sign = {(0, ""): "*", (1, ""): "+", (0, 1): "?"}.get((int(low), most), f"{{{int(low)},{most}}}")
        return f"{inner if plain else f'(?:{inner})'}{sign}{lazy}"

    return write


_WRITERS: dict[Any, Callable[[Any, bool], str]] = {
    codes.LITERAL: _literal,
    codes.NOT_LITERAL: lambda value, _: f"[^{_literal(value)}]",
    codes.ANY: lambda _, __: r"[^\n]",
    codes.IN: _set,
    codes.AT: _place,
    codes.SUBPATTERN: _group,
    codes.BRANCH: _branch,
    codes.MAX_REPEAT: _repeat(""),
    codes.MIN_REPEAT: _repeat("?"),
}
