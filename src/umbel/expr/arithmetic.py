"""Arithmetic: + - * / // % and unary minus, over ints and floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from umbel.expr.kinds import Guarded, Number, Real, Site
from umbel.expr.registry import Built, plain
from umbel.expr.rules import number
from umbel.expr.sums import WRONG

SMALLEST = -(2**63)


def checked(exact: pl.Expr, approximate: pl.Expr, *, is_whole: bool) -> Built:
    """Return a result; an int result is guarded against overflow.

    `approximate` is the same result computed in floats.
    """
    if not is_whole:
        return exact
    return Guarded(exact, wrapped(exact, approximate), "the int does not fit in 64 bits")


def wrapped(exact: pl.Expr, approximate: pl.Expr) -> pl.Expr:
    """Return True on rows with an overflowed int result, by comparison with floats."""
    return (exact.cast(pl.Float64) - approximate).abs() > WRONG


def real(value: pl.Expr) -> pl.Expr:
    """Return a number as a float."""
    return value.cast(pl.Float64)


def _together(left: pl.Expr, right: pl.Expr, operate: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> pl.Expr:
    """Return the result of an operation on two fields of a struct, each computed once.

    Where an operation has an operand several times, operations in each other would otherwise grow exponentially.
    """
    pairs = pl.struct(left.alias("left"), right.alias("right"))
    result = operate(pl.field("left"), pl.field("right")).alias("result")
    return pairs.struct.with_fields(result).struct.field("result")


def _once(left: pl.Expr, right: pl.Expr, operate: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> pl.Expr:
    """Return the result of an operation that has an operand several times, computed once."""
    is_there = all(each.meta.is_column() or each.meta.is_literal() for each in (left, right))
    return operate(left, right) if is_there else _together(left, right, operate)


@plain("infix", "+", rule=number)
def add(left: Number, right: Number, site: Site) -> Built:
    """Add two numbers.

    >>> values(col("x") + col("y"), x=[1, None], y=[2.5, 1.0])
    [3.5, None]
    """
    return checked(left + right, real(left) + real(right), is_whole=site.is_whole)


@plain("infix", "-", rule=number)
def sub(left: Number, right: Number, site: Site) -> Built:
    """Subtract the right number from the left.

    >>> values(col("x") - 1, x=[1, None])
    [0, None]
    """
    return checked(left - right, real(left) - real(right), is_whole=site.is_whole)


@plain("infix", "*", rule=number)
def mul(left: Number, right: Number, site: Site) -> Built:
    """Multiply two numbers.

    >>> values(col("x") * 2, x=[1.5, 2.0])
    [3.0, 4.0]
    """
    return checked(left * right, real(left) * real(right), is_whole=site.is_whole)


@plain("infix", "/")
def truediv(left: Number, right: Number) -> Real:
    """Divide as floats: x / 0 is infinite, 0 / 0 NaN, read as null.

    >>> values(col("x") / 2, x=[1, 4])
    [0.5, 2.0]
    """
    # A column divided by a single number is multiplied by its inverse, which is rounded. The fields of a struct are both columns.
    return _together(real(left), real(right), lambda left, right: left / right)


@plain("infix", "//", rule=number)
def floordiv(left: Number, right: Number, site: Site) -> Built:
    """Divide and round down; an int divided by 0 is an error.

    >>> values(col("x") // 2, x=[5, -5])
    [2, -3]
    """
    if not site.is_whole:
        return _as_python(np.floor_divide, left, right)

    def overflows(left: pl.Expr, right: pl.Expr) -> pl.Expr:
        return (right == -1) & (left == SMALLEST)

    def divided(left: pl.Expr, right: pl.Expr) -> pl.Expr:
        return left // pl.when(overflows(left, right)).then(1).otherwise(right)

    failure = ((right == 0) & left.is_not_null()) | overflows(left, right)
    return Guarded(_once(left, right, divided), failure, "int division by zero or overflow")


@plain("infix", "%", rule=number)
def mod(left: Number, right: Number, site: Site) -> Built:
    """Return the remainder, with the sign of the divisor.

    An int modulo 0 is an error, a float modulo 0 is NaN.

    >>> values(col("x") % 3, x=[5, -5])
    [2, 1]
    """
    if not site.is_whole:
        return _as_python(np.mod, left, right)

    def remainder(left: pl.Expr, right: pl.Expr) -> pl.Expr:
        return left % pl.when(right == -1).then(1).otherwise(right)

    return Guarded(_once(left, right, remainder), (right == 0) & left.is_not_null(), "int modulo zero")


def _as_python(function: np.ufunc, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Return a function of two floats, computed by NumPy.

    It divides with an exact remainder, as Python does and Polars does not.
    """

    def run(pairs: pl.Series) -> pl.Series:
        columns = [pairs.struct.field(name) for name in ("left", "right")]
        with np.errstate(all="ignore"):
            found: Any = function(*(column.to_numpy() for column in columns))
        return pl.Series(found, dtype=pl.Float64).set(columns[0].is_null() | columns[1].is_null(), None)

    pairs = pl.struct(real(left).alias("left"), real(right).alias("right"))
    return pairs.map_batches(run, return_dtype=pl.Float64(), is_elementwise=True)


@plain("prefix", "-", rule=number)
def neg(value: Number, site: Site) -> Built:
    """Change the sign.

    >>> values(-col("x"), x=[1, -2])
    [-1, 2]
    """
    return checked(-value, -real(value), is_whole=site.is_whole)
