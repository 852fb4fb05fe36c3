"""Every error umbel raises: what is wrong, where, and what to do about it.

An `UmbelError` also subclasses the builtin a user would catch (`ValueError`, `TypeError`, `KeyError`, ...), so that
`except ValueError` keeps working in code that knows nothing of umbel.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from types import FrameType

_OWN = f"{Path(__file__).parent}{os.sep}"
_STDLIB = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class UmbelError(Exception):
    """The root of umbel's errors.

    Args:
        message: what is wrong, naming the object and the field.
        where: `file:line` of the definition at fault, when known; else the text tells the line of the user's code that
            was running.
        hint: what to do about it.
    """

    code = "error"

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.where, self.hint = message, where, hint
        self.raised_at = _users_line()

    def __str__(self) -> str:
        return self._told(self.where or self.raised_at)

    def told(self) -> str:
        """Return the text as part of another error's, which tells the line of the user's code that was running."""
        return self._told(self.where)

    def _told(self, where: str | None) -> str:
        place = f" (at {where})" if where else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{self.message}{place}{hint}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.where or self.raised_at, self.hint))


def _rebuild(kind: type[UmbelError], message: str, where: str | None, hint: str | None) -> UmbelError:
    return kind(message, where=where, hint=hint)


def _users_line() -> str | None:
    """Return `file:line` of the innermost code on the stack that is neither umbel's nor a library's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not _is_users(frame):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def line_of(error: BaseException) -> str | None:
    """Return `file:line` of the innermost code that is neither umbel's nor a library's in the traceback of an error."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if _is_users(trace.tb_frame):
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _is_users(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file.startswith((_OWN, _STDLIB, "<frozen", "<string>")) or any(part in file for part in _INSTALLED):
        return False
    return Path(file).parent.name != "bin"


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


def all_faults(
    faults: Iterable[UmbelError | str], kind: type[UmbelError], headline: str, *, hint: str | None = None
) -> UmbelError | None:
    """Return one error of `kind` that lists every fault, or None when there is none."""
    lines = [fault.told() if isinstance(fault, UmbelError) else fault for fault in faults]
    if not lines:
        return None
    return kind(headline + "".join(f"\n  - {line}" for line in lines), hint=hint)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for a close match among `known`, else the list of what exists."""
    names = sorted(set(known))
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(names)}" if names else ""
