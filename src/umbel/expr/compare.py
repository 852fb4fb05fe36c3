"""Comparison operators.

NaN compares as in Python: it is neither equal to, nor less or greater than anything.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from umbel.expr.errors import InvalidExprException, compile_error
from umbel.expr.kinds import Anything, Number, Site, Truth
from umbel.expr.lattice import Null
from umbel.expr.registry import plain
from umbel.types.dtypes import Bool, Bytes, Date, Datetime, Decimal, DType, Float, Int, List, Str

_EQUATED: tuple[type[DType], ...] = (Int, Float, Str, Bool, Datetime, Date, Decimal, Bytes)


def equated(left: DType, right: DType) -> bool:
    """Return True if values of two types can be compared for equality."""
    if isinstance(left, Null) or isinstance(right, Null):
        return True
    one, other = left.plain, right.plain
    if isinstance(one, List) and isinstance(other, List):
        return one.of.plain == other.of.plain and equated(one.of, other.of)
    is_same = type(one) is type(other) or {type(one), type(other)} == {Int, Float}
    return is_same and isinstance(one, _EQUATED)


def _equality(sign: str) -> Callable[[Site], DType]:
    def rule(site: Site) -> DType:
        left, right = site.types
        if not equated(left, right):
            raise compile_error(f"'{sign}' does not compare {left} with {right}")
        return Bool()

    return rule


def is_nan(value: pl.Expr, dtype: DType) -> pl.Expr:
    """Return True on rows with a NaN; always False for types other than Float."""
    return value.is_nan() if isinstance(dtype.plain, Float) else pl.lit(False)


@plain("infix", "==", rule=_equality("=="))
def eq(left: Anything, right: Anything, site: Site) -> Truth:
    """Test two values for equality; null if one is null.

    >>> values(col("x") == 1, x=[1, 2, None])
    [True, False, None]
    """
    return _equal(left, right, site)


def _equal(left: pl.Expr, right: pl.Expr, site: Site) -> pl.Expr:
    if any(isinstance(dtype, Null) for dtype in site.types):
        return pl.lit(None, dtype=pl.Boolean)
    return (left == right) & (~is_nan(left, site.types[0]) | right.is_null())


@plain("infix", "!=", rule=_equality("!="))
def ne(left: Anything, right: Anything, site: Site) -> Truth:
    """Test two values for inequality; null if one is null.

    >>> values(col("x") != 1, x=[1, 2, None])
    [False, True, None]
    """
    return ~_equal(left, right, site)


@plain("infix", ">")
def gt(left: Number, right: Number, site: Site) -> Truth:
    """Test if the left number is greater than the right one.

    >>> values(col("x") > 1, x=[1, 2, None])
    [False, True, None]
    """
    return (left > right) & (~is_nan(left, site.types[0]) | right.is_null())


@plain("infix", ">=")
def ge(left: Number, right: Number, site: Site) -> Truth:
    """Test if the left number is greater than or equal to the right one.

    >>> values(col("x") >= 1, x=[0, 1, None])
    [False, True, None]
    """
    return (left >= right) & (~is_nan(left, site.types[0]) | right.is_null())


@plain("infix", "<")
def lt(left: Number, right: Number, site: Site) -> Truth:
    """Test if the left number is less than the right one.

    >>> values(col("x") < 1, x=[0, 1, None])
    [True, False, None]
    """
    return (left < right) & (~is_nan(right, site.types[1]) | left.is_null())


@plain("infix", "<=")
def le(left: Number, right: Number, site: Site) -> Truth:
    """Test if the left number is less than or equal to the right one.

    >>> values(col("x") <= 1, x=[1, 2, None])
    [True, False, None]
    """
    return (left <= right) & (~is_nan(right, site.types[1]) | left.is_null())


def _refuse_item(site: Site) -> DType:
    raise InvalidExprException(
        f"'[]' is not supported on {site.types[0]}", hint="use .list.at(i), .dict.get(key) or .struct.get(name)"
    )


@plain("item", rule=_refuse_item)
def getitem(value: Anything, key: Anything) -> Anything:
    """Raise an error for square brackets: each kind of container has its own method.

    >>> values(col("l")[0], l=[[1, 2]])
    Traceback (most recent call last):
    umbel.expr.errors.InvalidExprException: failed to compile expression: '[]' is not supported on List[int], ...
    """
    return value
