"""Checks of arguments that are True or False."""

from __future__ import annotations

from umbel.errors import InvalidValue


def check_flags(subject: str, **flags: object) -> None:
    """Check that arguments are True or False.

    The text "no" is neither, and would count as true.

    Args:
        subject: the beginning of the message.
        flags: the arguments by name.

    Raises:
        InvalidValue: one is not; the message names it.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidValue(f"{subject}: {name} must be True or False, found {value!r}", hint=f"{name}=True")
