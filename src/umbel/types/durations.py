"""Durations written as text: `"1d 12h"`, `"90m"`, `"1.5h"`."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from umbel.errors import InvalidType, InvalidValue

MICROSECOND = timedelta(microseconds=1)
UNITS = {
    "y": 365 * 86_400_000_000,
    "w": 7 * 86_400_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
}
LONGEST = 2**63 - 1
WORDS = {
    **dict.fromkeys(("year", "years", "yr", "yrs"), "y"),
    **dict.fromkeys(("month", "months"), ""),
    **dict.fromkeys(("week", "weeks", "wk", "wks"), "w"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("hour", "hours", "hr", "hrs"), "h"),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), "m"),
    **dict.fromkeys(("second", "seconds", "sec", "secs"), "s"),
}
"""The units by other names that are not accepted, for hints; empty for an unsupported unit."""

_GROUP = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z])")
_NUMBER = re.compile(r"\s*[0-9]*\.?[0-9]*\s*")
_WORD = re.compile(r"[A-Za-z]+")
_LETTERS = "use y (365 days), w, d, h, m (minutes) and s, as in '1d 12h'"


def parse_duration(text: str) -> int:
    """Parse a duration text to microseconds.

    Args:
        text: groups of a number and a unit in any order, spaces optional: y (365 days), w, d, h, m (minutes), s.

    Raises:
        InvalidType: not a string, or a number without a unit.
        InvalidValue: an unknown unit, or text that is not a duration.

    >>> parse_duration("1.5h")
    5400000000
    """
    if not isinstance(text, str):
        raise InvalidType(f"invalid duration {text!r}: expected a string, got {type(text).__name__}", hint=_LETTERS)
    if text.strip() and _NUMBER.fullmatch(text):
        raise InvalidType(f"invalid duration '{text}': a number without a unit", hint=_LETTERS)
    _refuse_unknown_units(text)
    groups = _GROUP.findall(text)
    if not groups or _GROUP.sub("", text).strip():
        raise InvalidValue(f"invalid duration '{text}': expected numbers, each followed by a unit", hint=_LETTERS)
    total = round(sum(Fraction(number.rstrip(".")) * UNITS[unit] for number, unit in groups))
    if total > LONGEST:
        raise InvalidValue(
            f"invalid duration '{text}': longer than {LONGEST} microseconds", hint="use 'forever' if it may be"
        )
    return total


def _refuse_unknown_units(text: str) -> None:
    for word in _WORD.findall(text):
        unit = WORDS.get(word.lower())
        if unit is not None:
            hint = f"write '{text.replace(word, unit)}'" if unit else "months differ in length: write days, as in '30d'"
            raise InvalidValue(f"invalid duration '{text}': unknown unit '{word}'", hint=f"{hint}; {_LETTERS}")
    for letter in text:
        if letter not in UNITS and letter not in ".0123456789" and not letter.isspace():
            raise InvalidValue(f"invalid duration '{text}': unknown unit '{letter}'", hint=_LETTERS)


def duration_us(duration: str | timedelta) -> int:
    """Return the microseconds of a duration, from text or a timedelta."""
    return duration // MICROSECOND if isinstance(duration, timedelta) else parse_duration(duration)


def format_duration(microseconds: int) -> str:
    """Format a duration as text; it parses back to the same microseconds.

    >>> format_duration(5_400_000_000)
    '1h 30m'
    """
    parts = []
    rest = microseconds
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest or not parts:
        seconds, fraction = divmod(rest, UNITS["s"])
        parts.append(f"{seconds}.{fraction:06d}".rstrip("0") + "s" if fraction else f"{seconds}s")
    return " ".join(parts)
