"""Functions of numbers: `.num`."""

from __future__ import annotations

import math
from typing import Annotated, Any

import polars as pl

from umbel.expr.arithmetic import checked, real, wrapped
from umbel.expr.errors import InvalidExprException
from umbel.expr.kinds import Constant, Guarded, Number, Real, Site, Text, Truth
from umbel.expr.registry import Built, method
from umbel.expr.rules import number
from umbel.types.dtypes import DType, Float, Int

# Floats from here on do not fit in 64 bits.
_LIMIT = float(2**63)


def _precision(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidExprException(f"round: precision must be an int of at least 0, not {value!r}", hint="round(2)")
    return value


Precision = Annotated[int, Constant("precision", _precision)]


def _whole(value: pl.Expr, site: Site) -> Built:
    """Return a rounded number as an int: null for NaN, an error on overflow."""
    if site.is_whole:
        return value
    outside = value.is_not_nan() & ((value >= _LIMIT) | (value < -_LIMIT))
    return Guarded(value.cast(pl.Int64, strict=False), outside, "the float does not fit in an int")


def _int(site: Site) -> DType:
    return Int()


@method(rule=number)
def abs_(value: Number, site: Site) -> Built:
    """Return the absolute value.

    >>> values(col("x").num.abs(), x=[-2, 3])
    [2, 3]
    """
    return checked(value.abs(), real(value).abs(), is_whole=site.is_whole)


@method(rule=_int)
def ceil(value: Number, site: Site) -> Built:
    """Round up to the nearest int.

    >>> values(col("x").num.ceil(), x=[1.2, -1.2])
    [2, -1]
    """
    return _whole(value.ceil(), site)


@method(rule=_int)
def floor(value: Number, site: Site) -> Built:
    """Round down to the nearest int.

    >>> values(col("x").num.floor(), x=[1.2, -1.2])
    [1, -2]
    """
    return _whole(value.floor(), site)


def _rounded(site: Site) -> DType:
    return Float() if site.constants["precision"] else Int()


@method(rule=_rounded)
def round_(value: Number, precision: Precision, site: Site) -> Built:
    """Round half away from zero.

    Returns an int if the precision is 0, else a float of that many decimals.

    >>> values(col("x").num.round(1), x=[1.26, -2.5])
    [1.3, -2.5]
    """
    if precision == 0:
        return _whole(value if site.is_whole else value.round(0, mode="half_away_from_zero"), site)
    return real(value).round(precision, mode="half_away_from_zero")


@method()
def sqrt(value: Number) -> Real:
    """Return the square root; NaN, read as null, for negative numbers.

    >>> values(col("x").num.sqrt(), x=[9.0, -1.0])
    [3.0, None]
    """
    return real(value).sqrt()


@method(rule=number)
def pow_(value: Number, exponent: Number, site: Site) -> Built:
    """Raise to a power; an int to a negative int power is an error.

    >>> values(col("x").num.pow(2), x=[3, -4])
    [9, 16]
    """
    if not site.is_whole:
        return real(value).pow(real(exponent))
    is_negative = exponent < 0
    # Polars takes exponents of 32 bits; from 64 on only -1, 0 and 1 have powers that fit, and parity decides them.
    small = pl.when(exponent > 63).then(62 + exponent % 2).otherwise(exponent)
    power = value.pow(pl.when(is_negative).then(0).otherwise(small))
    outside = wrapped(power, real(value).pow(real(exponent))) | (is_negative & value.is_not_null())
    return Guarded(power, outside, "a negative exponent, or an int that does not fit in 64 bits")


@method()
def log(value: Number, base: Number = math.e) -> Real:  # type: ignore[assignment]
    """Return the logarithm; infinite for 0, NaN (read as null) for negative numbers.

    >>> values(col("x").num.log(2), x=[8.0, 0.0])
    [3.0, -inf]
    """
    return real(value).log(real(base))


@method()
def sin(value: Number) -> Real:
    """Return the sine of radians.

    >>> values(col("x").num.sin(), x=[0.0])
    [0.0]
    """
    return real(value).sin()


@method()
def cos(value: Number) -> Real:
    """Return the cosine of radians.

    >>> values(col("x").num.cos(), x=[0.0])
    [1.0]
    """
    return real(value).cos()


@method()
def tan(value: Number) -> Real:
    """Return the tangent of radians.

    >>> values(col("x").num.tan(), x=[0.0])
    [0.0]
    """
    return real(value).tan()


@method()
def arcsin(value: Number) -> Real:
    """Return the arcsine in radians; NaN, read as null, outside of [-1, 1].

    >>> values(col("x").num.arcsin(), x=[0.0, 2.0])
    [0.0, None]
    """
    return real(value).arcsin()


@method()
def arccos(value: Number) -> Real:
    """Return the arccosine in radians; NaN, read as null, outside of [-1, 1].

    >>> values(col("x").num.arccos(), x=[1.0, 2.0])
    [0.0, None]
    """
    return real(value).arccos()


@method()
def arctan(value: Number) -> Real:
    """Return the arctangent in radians.

    >>> values(col("x").num.arctan(), x=[0.0])
    [0.0]
    """
    return real(value).arctan()


@method()
def to_string(value: Number) -> Text:
    """Return the number as text: `2`, `1.0`, `1e20`.

    >>> values(col("x").num.to_string(), x=[1, 20])
    ['1', '20']
    """
    return value.cast(pl.String).str.replace("e+", "e", literal=True)


@method()
def is_nan(value: Number) -> Truth:
    """Test for NaN.

    >>> values((col("x") / col("x")).num.is_nan(), x=[0.0, 1.0])
    [True, False]
    """
    return real(value).is_nan()


@method()
def is_infinite(value: Number) -> Truth:
    """Test for positive or negative infinity.

    >>> values((1 / col("x")).num.is_infinite(), x=[0.0, 1.0])
    [True, False]
    """
    return real(value).is_infinite()
