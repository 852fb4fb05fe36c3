"""Errors of the expression language."""

from __future__ import annotations

from umbel.errors import InvalidValue


class InvalidExprException(InvalidValue):
    """An expression was built incorrectly."""

    code = "invalid-expression"


def compile_error(reason: str, hint: str = "") -> InvalidValue:
    """Return the error for a failed type check."""
    usual = "operands must be columns that exist, of types the operator takes"
    return InvalidValue(f"failed to compile expression: {reason}", hint=hint or usual)


def evaluation_error(reason: str) -> InvalidValue:
    """Return the error for a failed evaluation on the input rows."""
    return InvalidValue(f"failed to evaluate expression: {reason}", hint="fill or filter the values it cannot take")
