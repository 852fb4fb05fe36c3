"""Errors of the expression language."""

from __future__ import annotations

from umbel.errors import InvalidValue


class InvalidExprException(InvalidValue):
    """An expression was put together in a way that has no meaning."""

    code = "invalid-expression"


def compile_error(reason: str, hint: str = "") -> InvalidValue:
    """Return the error of an expression that does not type-check."""
    usual = "operands must be columns that exist, of types the operator takes"
    return InvalidValue(f"failed to compile expression: {reason}", hint=hint or usual)


def evaluation_error(reason: str) -> InvalidValue:
    """Return the error of an expression that fails on the rows it is given."""
    return InvalidValue(f"failed to evaluate expression: {reason}", hint="fill or filter the values it cannot take")
