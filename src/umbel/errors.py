"""Every error umbel raises: what is wrong, where, and what to do about it.

An `UmbelError` also subclasses the builtin a user would catch (`ValueError`, `TypeError`, `KeyError`, ...), so that
`except ValueError` keeps working in code that knows nothing of umbel.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UmbelError(Exception):
    """The root of umbel's errors.

    Args:
        message: what is wrong, naming the object and the field.
        where: `file:line` of the definition at fault, when known.
        hint: what to do about it.
    """

    code = "error"

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.where, self.hint = message, where, hint

    def __str__(self) -> str:
        place = f" (at {self.where})" if self.where else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{self.message}{place}{hint}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.where, self.hint))


def _rebuild(kind: type[UmbelError], message: str, where: str | None, hint: str | None) -> UmbelError:
    return kind(message, where=where, hint=hint)


class InvalidValue(UmbelError, ValueError):
    """A definition or an argument has a value that is not allowed."""

    code = "invalid-value"


class InvalidType(UmbelError, TypeError):
    """A definition or an argument has a type that is not allowed."""

    code = "invalid-type"


class InvalidAttribute(UmbelError, AttributeError):
    """A connector's arguments do not go together."""

    code = "invalid-attribute"


class UnknownName(UmbelError, KeyError):
    """A name that was asked for does not exist."""

    code = "unknown-name"


class NotSupported(UmbelError, NotImplementedError):
    """The request is understood, and cannot be served."""

    code = "not-supported"


class RuntimeFault(UmbelError):
    """Something went wrong while data was processed."""

    code = "runtime"


class Terminal(RuntimeFault):
    """Trying again cannot help: the data or the user's code is at fault."""

    code = "terminal"


class Transient(RuntimeFault):
    """Trying again may help: a connection, a lock, a full disk."""

    code = "transient"


def all_faults(faults: Iterable[UmbelError | str], kind: type[UmbelError], headline: str) -> UmbelError | None:
    """Return one error of `kind` that lists every fault, or None when there is none."""
    lines = [str(fault) for fault in faults]
    if not lines:
        return None
    return kind(headline + "".join(f"\n  - {line}" for line in lines))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for a close match among `known`, else the list of what exists."""
    names = sorted(set(known))
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(names)}" if names else ""
