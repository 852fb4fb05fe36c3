"""umbel's errors: a message, the location of the definition and a hint.

An `UmbelError` also subclasses the builtin a user would catch (`ValueError`, `TypeError`, `KeyError`, ...), so that
`except ValueError` works in code unaware of umbel.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

_OWN = f"{Path(__file__).parent}{os.sep}"
_STDLIB = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_COMPILED = (".pyx", ".pxd", ".pxi")
"""Sources of compiled modules: frames of pandas name them without their folder."""

LONGEST_TEXT = 2000
"""Characters that a message has of the text of a user's exception, and of an expression."""


class UmbelError(Exception):
    """The root of umbel's errors.

    Args:
        message: the problem, naming the object and the field.
        where: `file:line` of the faulty definition, when known; else the text names the running line of the user's code.
        hint: how to fix it.
    """

    code = "error"
    status = 400
    """The status of an HTTP response with the error."""
    retry_after: float | None = None
    """Seconds after which a retry may succeed, None if it cannot or if the time is unknown."""

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        message = encodable(str(message))  # packages give exceptions, too
        super().__init__(message)
        self.message, self.where, self.hint = message, where, None if hint is None else encodable(str(hint))
        self.raised_at = _users_line()

    def __str__(self) -> str:
        return self._described(self.where or self.raised_at)

    def described(self) -> str:
        """Return the text for inclusion in another error.

        It omits the running line of the user's code: the other error reports that line.
        """
        return self._described(self.where)

    def _described(self, where: str | None) -> str:
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{self._placed(where)}{hint}"

    def placed(self) -> str:
        """Return the message with the location of the definition, without the hint."""
        return self._placed(self.where)

    def _placed(self, where: str | None) -> str:
        """Return the message with a location in its first line."""
        if not where:
            return self.message
        first, separator, rest = self.message.partition("\n")
        colon = ":" if separator and first.endswith(":") else ""
        return f"{first.removesuffix(colon)} (at {where}){colon}{separator}{rest}"

    def restated(self, message: str, *, where: str | None = None, hint: str | None = None) -> UmbelError:
        """Return an error of the same class with another text.

        Args:
            message: the problem, with the subject that the error does not know.
            where: `file:line` of the faulty definition.
            hint: how to fix it.
        """
        return _made(type(self), message, where, hint, vars(self))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.where or self.raised_at, self.hint))


def _rebuild(kind: type[UmbelError], message: str, where: str | None, hint: str | None) -> UmbelError:
    return _made(kind, message, where, hint)


def _made(
    kind: type[UmbelError],
    message: str,
    where: str | None,
    hint: str | None,
    attributes: Mapping[str, object] = MappingProxyType({}),
) -> UmbelError:
    """Return an error of a class; where that cannot be, of the nearest of umbel's.

    The constructor of a class of another package may take other arguments, so it is not called.
    """
    layout: Any = kind
    while layout.__module__ != "builtins":
        layout = layout.__base__
    try:
        made: UmbelError = layout.__new__(kind)
        vars(made).update(attributes)
        UmbelError.__init__(made, message, where=where, hint=hint)
    except Exception:  # noqa: BLE001  of code of another package
        own = next(each for each in kind.__mro__ if each.__module__ == __name__ and issubclass(each, UmbelError))
        return own(message, where=where, hint=hint)
    return made


def _users_line() -> str | None:
    """Return `file:line` of the innermost user code on the stack, None if there is none.

    User code is neither umbel's nor a library's.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not _is_users(frame):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def line_of(error: BaseException) -> str | None:
    """Return `file:line` of the innermost user code in a traceback, None if there is none.

    User code is neither umbel's nor a library's.
    """
    return _innermost(error, _is_users)


def line_in(error: BaseException, module: str) -> str | None:
    """Return `file:line` of the innermost code of a module's package in a traceback."""
    package = module.partition(".")[0]
    return _innermost(error, lambda frame: frame.f_globals.get("__name__", "").partition(".")[0] == package)


def _innermost(error: BaseException, is_sought: Callable[[FrameType], bool]) -> str | None:
    """Return `file:line` of a traceback's innermost sought frame, if any."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if is_sought(trace.tb_frame):
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def text_of(error: BaseException, *, always: bool = False) -> str:
    """Return the text of an exception of user code, shortened.

    A class of the user's may fail to make one.

    Args:
        error: the exception.
        always: True where nothing else would report it: also if making the text raises KeyboardInterrupt or MemoryError.
    """
    try:
        text = error.message if isinstance(error, UmbelError) else str(error)
    except BaseException as failed:
        if isinstance(failed, KeyboardInterrupt | MemoryError) and not always:
            raise
        return f"its text cannot be made: {type(failed).__name__}"
    return encodable(shortened(text))


def shortened(text: object) -> str:
    """Return a text; of a long one the beginning, and its length."""
    found = str(text)
    return found if len(found) <= LONGEST_TEXT else f"{found[:LONGEST_TEXT]}… ({len(found)} characters)"


def unwrapped(error: BaseException) -> BaseException:
    """Return the error of a database within that of SQLAlchemy, or the error itself."""
    return getattr(error, "orig", None) or error


def encodable(text: str) -> str:
    """Return text that UTF-8 can have: unpaired surrogates, as in names of files, are escaped."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _is_users(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file.startswith((_OWN, _STDLIB, "<frozen", "<string>")) or any(part in file for part in _INSTALLED):
        return False
    if file.endswith(_COMPILED):
        return False
    return Path(file).parent.name != "bin"


class InvalidValue(UmbelError, ValueError):
    """A definition or an argument has an invalid value."""

    code = "invalid-value"


class InvalidType(UmbelError, TypeError):
    """A definition or an argument has an invalid type."""

    code = "invalid-type"


class InvalidAttribute(UmbelError, AttributeError):
    """A connector's arguments are inconsistent."""

    code = "invalid-attribute"


class UnknownName(UmbelError, KeyError):
    """A requested name does not exist."""

    code = "unknown-name"
    status = 404


class PackageError(UmbelError, ImportError):
    """A package that extends umbel is missing, broken, or takes a used name."""

    code = "package"


class NotSupported(UmbelError, NotImplementedError):
    """The request is valid but not supported."""

    code = "not-supported"
    status = 422


class Conflict(UmbelError):
    """A request contradicts an earlier one, or the state that it has changed."""

    code = "conflict"
    status = 409


class RuntimeFailure(UmbelError):
    """An error during the processing of data."""

    code = "runtime"


class Terminal(RuntimeFailure):
    """An error in the data or the user's code; a retry cannot succeed."""

    code = "terminal"
    status = 422


class Damaged(Terminal):
    """Stored data is missing or differs from the data written; it is not served."""

    code = "damaged"
    status = 503


class HistoryDropped(Terminal, ValueError):
    """An answer would need changes that the retention of change logs has dropped."""

    code = "history-dropped"
    status = 410


class Transient(RuntimeFailure):
    """A retry may succeed: a connection, a lock, a full disk."""

    code = "transient"
    status = 503
    retry_after = 1.0


class Overloaded(Transient):
    """The server rejects events until it has processed some or has space again."""

    code = "overloaded"
    status = 429
    retry_after = 5.0


def raise_all(
    errors: Iterable[UmbelError | str],
    kind: type[UmbelError],
    headline: str,
    *,
    where: str | None = None,
    hint: str | None = None,
) -> None:
    """Raise one error of `kind` listing all of `errors`, if there are any."""
    lines = [error.described() if isinstance(error, UmbelError) else error for error in errors]
    if lines:
        raise _made(kind, headline + "".join(f"\n  - {line}" for line in lines), where, hint)


class ErrorCollector:
    """The errors of one definition, reported together.

    Args:
        subject: the defined object, for messages.
        where: `file:line` of errors without a location of their own.
    """

    def __init__(self, subject: str, where: str | None = None) -> None:
        self.subject, self.where = subject, where
        self.found: list[UmbelError] = []

    def add(self, *errors: UmbelError) -> None:
        """Record errors."""
        for error in errors:
            error.where = error.where or self.where
            self.found.append(error)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Record an error raised inside the block, and continue after it."""
        try:
            yield
        except UmbelError as error:
            self.add(error)

    def check(self, headline: str | None = None) -> None:
        """Raise the collected error.

        Several are raised as one error of the class of the first that lists them all.

        Args:
            headline: the first line of several errors; by default the subject and their number.
        """
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise_all(self.found, type(self.found[0]), headline or f"{self.subject}: {len(self.found)} faults")


@contextmanager
def located(where: str) -> Iterator[None]:
    """Set the location of an error that has none."""
    try:
        yield
    except UmbelError as error:
        error.where = error.where or where
        raise


LONGEST_NAME, MOST_NAMES = 200, 50
"""Limits of the search for close names: it takes the square of their length."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for a close match, else all known names."""
    names = sorted(set(known))
    close = _closest(name, names)
    if close is not None:
        return f"; did you mean '{close}'?"
    return f"; known: {', '.join(names)}" if names else ""


def misspelt(missing: Iterable[str], unknown: Iterable[object]) -> str:
    """Return `; is 'usr' meant to be 'user'?` for a misspelt required name.

    Returns the empty text if no unknown name is close to a missing one.

    Args:
        missing: the required names without a value.
        unknown: the provided names that match nothing.
    """
    required = list(missing)
    for name in map(str, islice(unknown, MOST_NAMES)):
        close = _closest(name, required)
        if close is not None:
            return f"; is '{name}' meant to be '{close}'?"
    return ""


def _closest(name: str, names: Iterable[str]) -> str | None:
    """Return the name most like another, in whatever case, None if none is."""
    if len(name) > LONGEST_NAME:
        return None
    folded = {each.casefold(): each for each in names}
    close = get_close_matches(name.casefold(), folded, n=1)
    return folded[close[0]] if close else None
