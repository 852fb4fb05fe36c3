"""Arithmetic: + - * / // % and unary minus, over ints and floats."""

from __future__ import annotations

import polars as pl

from umbel.expr.kinds import Guarded, Number, Real, Site
from umbel.expr.registry import Built, plain
from umbel.expr.rules import number

SMALLEST = -(2**63)
# A result that wrapped around is wrong by a multiple of 2**64; floats of that size are exact to 2**11.
_WRONG = float(2**62)


def checked(exact: pl.Expr, approximate: pl.Expr, *, is_whole: bool) -> Built:
    """Return a result, guarded against overflow when it is an int; `approximate` is the same result in floats."""
    if not is_whole:
        return exact
    return Guarded(exact, wrapped(exact, approximate), "the int does not fit in 64 bits")


def wrapped(exact: pl.Expr, approximate: pl.Expr) -> pl.Expr:
    """Whether an int result overflowed, given the same result in floats."""
    return (exact.cast(pl.Float64) - approximate).abs() > _WRONG


def real(value: pl.Expr) -> pl.Expr:
    """Return a number as a float."""
    return value.cast(pl.Float64)


@plain("infix", "+", rule=number)
def add(left: Number, right: Number, site: Site) -> Built:
    """Add two numbers."""
    return checked(left + right, real(left) + real(right), is_whole=site.is_whole)


@plain("infix", "-", rule=number)
def sub(left: Number, right: Number, site: Site) -> Built:
    """Subtract the right number from the left."""
    return checked(left - right, real(left) - real(right), is_whole=site.is_whole)


@plain("infix", "*", rule=number)
def mul(left: Number, right: Number, site: Site) -> Built:
    """Multiply two numbers."""
    return checked(left * right, real(left) * real(right), is_whole=site.is_whole)


@plain("infix", "/")
def truediv(left: Number, right: Number) -> Real:
    """Divide, always giving a float: x / 0 is infinite, 0 / 0 is NaN, which is seen as null."""
    return real(left) / real(right)


@plain("infix", "//", rule=number)
def floordiv(left: Number, right: Number, site: Site) -> Built:
    """Divide and round down; an int divided by 0 is an error."""
    if not site.is_whole:
        return (real(left) / real(right)).floor()
    is_smallest = (right == -1) & (left == SMALLEST)
    divisor = pl.when(is_smallest).then(1).otherwise(right)
    fault = ((right == 0) & left.is_not_null()) | is_smallest
    return Guarded(left // divisor, fault, "int division by zero or overflow")


@plain("infix", "%", rule=number)
def mod(left: Number, right: Number, site: Site) -> Built:
    """Return the remainder, with the sign of the divisor; an int modulo 0 is an error, a float modulo 0 is NaN."""
    if not site.is_whole:
        return _real_mod(real(left), real(right))
    divisor = pl.when(right == -1).then(1).otherwise(right)
    return Guarded(left % divisor, (right == 0) & left.is_not_null(), "int modulo zero")


def _real_mod(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    has_other_sign = (left != 0) & ((left < 0) != (right < 0))
    by_infinite = pl.when(has_other_sign).then(right).otherwise(left)
    return pl.when(right.is_infinite() & left.is_finite()).then(by_infinite).otherwise(left % right)


@plain("prefix", "-", rule=number)
def neg(value: Number, site: Site) -> Built:
    """Change the sign."""
    return checked(-value, -real(value), is_whole=site.is_whole)
