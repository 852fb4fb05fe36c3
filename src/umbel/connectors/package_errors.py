"""Errors of the code of connectors, as errors of their sources."""

from __future__ import annotations

from umbel.errors import Transient, UmbelError, line_in, text_of


class ReaderFailed(Transient):
    """The code of a connector raised an error that is not umbel's."""


def transient_of(error: BaseException, subject: str, module: str) -> UmbelError:
    """Return an error of a connector's code as a transient one, with its line.

    Errors of umbel stay as they are.

    Args:
        error: the exception.
        subject: what failed, with a colon and a space behind it.
        module: of the connector.
    """
    if isinstance(error, UmbelError):
        return error
    text = f"{subject}{type(error).__name__}: {text_of(error, always=True):.300}"
    line = line_in(error, module)
    made = ReaderFailed(f"{text} (at {line})" if line else text, hint="see that the system runs and can be reached")
    made.__cause__ = error
    return made
