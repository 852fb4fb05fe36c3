"""Errors of the code of connectors, as errors of their sources."""

from __future__ import annotations

from umbel.errors import Transient, UmbelError, text_of


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
    line = _line_in(error, module)
    made = ReaderFailed(f"{text} (at {line})" if line else text, hint="see that the system runs and can be reached")
    made.__cause__ = error
    return made


def _line_in(error: BaseException, module: str) -> str | None:
    """Return `file:line` of the innermost code of a module's package in a traceback."""
    found, trace, package = None, error.__traceback__, module.partition(".")[0]
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == package:
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
