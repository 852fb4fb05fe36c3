"""The arguments of a join, as passed by the user."""

from __future__ import annotations

from typing import Any

from umbel.errors import InvalidType, InvalidValue
from umbel.types.durations import parse_duration
from umbel.types.windows import FOREVER

HOW = ("inner", "left")


def join_arguments(
    subject: str,
    how: Any,
    on: Any,
    left_on: Any,
    right_on: Any,
    within: Any,
    fields: Any,
) -> dict[str, Any]:
    """Return the fields of the join operator.

    Raises:
        InvalidValue: the arguments contradict each other; the message names the right dataset.
    """
    if how not in HOW:
        raise InvalidValue(
            f"{subject}: how must be 'inner' or 'left', found {how!r}",
            hint='how="inner" drops rows without a match, how="left" keeps them',
        )
    back, ahead = _within(subject, within)
    return {
        "on": _pairs(subject, on, left_on, right_on),
        "inner": how == "inner",
        "fields": _fields(subject, fields),
        "back": back,
        "ahead": ahead,
    }


def _fields(subject: str, fields: Any) -> tuple[str, ...] | None:
    if fields is None:
        return None
    is_empty = isinstance(fields, list | tuple) and not fields
    return () if is_empty else tuple(_columns(subject, "fields", fields))


def _pairs(subject: str, on: Any, left_on: Any, right_on: Any) -> tuple[tuple[str, str], ...]:
    if on is not None:
        if left_on is not None or right_on is not None:
            raise InvalidValue(
                f"{subject}: give either on=, or left_on= and right_on=, not both",
                hint='on=["uid"], or left_on=["user"] with right_on=["uid"]',
            )
        return tuple((name, name) for name in _columns(subject, "on", on))
    if left_on is None or right_on is None:
        raise InvalidValue(
            f"{subject}: give either on=, or left_on= and right_on=",
            hint='on=["uid"], or left_on=["user"] with right_on=["uid"]',
        )
    left, keys = _columns(subject, "left_on", left_on), _columns(subject, "right_on", right_on)
    if len(left) != len(keys):
        raise InvalidValue(
            f"{subject}: left_on {left} and right_on {keys} differ in length",
            hint="name as many columns on either side",
        )
    return tuple(zip(left, keys, strict=True))


def _columns(subject: str, argument: str, names: Any) -> list[str]:
    if not isinstance(names, list | tuple) or not names:
        raise InvalidValue(
            f"{subject}: {argument} must be a list of column names, found {names!r}", hint=f'{argument}=["uid"]'
        )
    return [str(name) for name in names]


def _within(subject: str, within: Any) -> tuple[int | None, int]:
    if not isinstance(within, tuple) or len(within) != len(("back", "ahead")):
        raise InvalidValue(
            f"{subject}: within must be a pair of durations (back, ahead), found {within!r}", hint='within=("1d", "0s")'
        )
    back, ahead = within
    if back is None or ahead is None:
        raise InvalidValue(f"{subject}: within {within!r} must not contain None", hint="use 'forever' or '0s'")
    if ahead == FOREVER:
        raise InvalidValue(
            f"{subject}: within {within!r}: the second duration cannot be 'forever'", hint='within=("forever", "0s")'
        )
    return None if back == FOREVER else _duration(subject, within, back), _duration(subject, within, ahead)


def _duration(subject: str, within: Any, text: Any) -> int:
    try:
        return parse_duration(text)
    except (InvalidType, InvalidValue) as error:
        raise InvalidValue(f"{subject}: within {within!r}: {error.message}", hint=error.hint) from error
