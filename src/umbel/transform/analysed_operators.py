"""Operators in the analysis of `custom_code`: arithmetic, comparison, slices."""

from __future__ import annotations

import ast
from collections.abc import Callable

import polars as pl

from umbel.transform.native import ColumnKind, Native, NotNative, is_finite

_EXACT = 2**53
"""Below it, integers are exact as floats."""
_SUM, _FACTOR = 2**62, 2**31


def computed(op: ast.operator, left: Native, right: Native) -> Native:
    """Return the result of an arithmetic operator.

    Raises:
        NotNative: it has no proven form for the types.
    """
    if isinstance(op, ast.Add) and left.kind is right.kind is ColumnKind.TEXT:
        return _joined(left, right, left.expr + right.expr, ColumnKind.TEXT)
    make = _ARITHMETIC.get(type(op))
    if make is None or {left.kind, right.kind} - {ColumnKind.INT, ColumnKind.FLOAT}:
        raise NotNative(f"the operator {type(op).__name__} of {left.kind.value} and {right.kind.value}")
    return make(left, right)


def negated(value: Native) -> Native:
    """Return the negative of numbers."""
    number = value.of_kind(ColumnKind.INT, ColumnKind.FLOAT)
    return number.then(-number.expr, None, number.expr.is_not_null(), _small(number, _SUM))


def _joined(left: Native, right: Native, expr: pl.Expr, kind: ColumnKind, *guards: pl.Expr) -> Native:
    both = (left.expr.is_not_null(), right.expr.is_not_null())  # of None Python raises TypeError
    return Native(expr, kind, (*left.fits, *right.fits, *both, *guards))


def _small(number: Native, limit: int) -> pl.Expr:
    if number.kind is ColumnKind.INT:
        return (number.expr > -limit) & (number.expr < limit)
    return pl.lit(value=True)


def _arithmetic(operate: Callable[[pl.Expr, pl.Expr], pl.Expr], limit: int) -> Callable[[Native, Native], Native]:
    def make(left: Native, right: Native) -> Native:
        if left.kind is right.kind is ColumnKind.INT:
            found = operate(left.expr, right.expr)
            return _joined(left, right, found, ColumnKind.INT, _small(left, limit), _small(right, limit))
        first, second = (each.expr.cast(pl.Float64) for each in (left, right))
        found = operate(first, second)
        # to add a zero changes nothing for Polars, but the sign of another zero for Python
        has_sign = (first != 0) | (second != 0)
        guards = (_small(left, _EXACT), _small(right, _EXACT), is_finite(found), has_sign)
        return _joined(left, right, found, ColumnKind.FLOAT, *(guards[:3] if limit == _FACTOR else guards))

    return make


def _divided(left: Native, right: Native) -> Native:
    first, second = (each.expr.cast(pl.Float64) for each in (left, right))
    if not first.meta.root_names():
        raise NotNative("the quotient of a constant")
    # a column as well: by a constant Polars would multiply with its reciprocal, which rounds otherwise
    found = first / (second + first * 0.0)
    guards = (_small(left, _EXACT), _small(right, _EXACT), second != 0, is_finite(found))
    return _joined(left, right, found, ColumnKind.FLOAT, *guards)


def _whole(operate: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[[Native, Native], Native]:
    def make(left: Native, right: Native) -> Native:
        if not left.kind is right.kind is ColumnKind.INT:
            raise NotNative("// or % of floats")
        # signs aside: the engines round to different sides
        guards = (left.expr >= 0, right.expr > 0)
        return _joined(left, right, operate(left.expr, right.expr), ColumnKind.INT, *guards)

    return make


_ARITHMETIC: dict[type[ast.operator], Callable[[Native, Native], Native]] = {
    ast.Add: _arithmetic(lambda a, b: a + b, _SUM),
    ast.Sub: _arithmetic(lambda a, b: a - b, _SUM),
    ast.Mult: _arithmetic(lambda a, b: a * b, _FACTOR),
    ast.Div: _divided,
    ast.FloorDiv: _whole(lambda a, b: a // b),
    ast.Mod: _whole(lambda a, b: a % b),
}
_ORDERS: dict[type[ast.cmpop], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


def compared(op: ast.cmpop, left: Native, right: Native) -> Native:
    """Return the result of a comparison.

    Raises:
        NotNative: it has no proven form for the types.
    """
    if isinstance(op, ast.In | ast.NotIn):
        texts = right.of_kind(ColumnKind.TEXT).expr.str.contains(left.of_kind(ColumnKind.TEXT).expr, literal=True)
        return _joined(left, right, texts if isinstance(op, ast.In) else ~texts, ColumnKind.BOOL)
    guards: tuple[pl.Expr, ...] = ()
    if {left.kind, right.kind} == {ColumnKind.INT, ColumnKind.FLOAT}:
        guards = (_small(left, _EXACT), _small(right, _EXACT))
        left, right = (each.then(each.expr.cast(pl.Float64), ColumnKind.FLOAT) for each in (left, right))
    if left.kind is not right.kind or left.kind not in (
        ColumnKind.TEXT,
        ColumnKind.INT,
        ColumnKind.FLOAT,
        ColumnKind.BOOL,
    ):
        raise NotNative(f"a comparison of {left.kind.value} and {right.kind.value}")
    if type(op) in _ORDERS:
        return _joined(left, right, _ORDERS[type(op)](left.expr, right.expr), ColumnKind.BOOL, *guards)
    if isinstance(op, ast.Eq):
        found = left.expr.eq_missing(right.expr)
    elif isinstance(op, ast.NotEq):
        found = left.expr.ne_missing(right.expr)
    else:
        raise NotNative(f"the comparison {type(op).__name__}")
    return Native(found, ColumnKind.BOOL, (*left.fits, *right.fits, *guards))


def text_slice(value: Native, part: ast.expr) -> Native:
    """Return a character or a slice of texts, with constant bounds.

    Raises:
        NotNative: the values are no texts, or a bound is computed.
    """
    text = value.of_kind(ColumnKind.TEXT)
    text = text.guarded(text.expr.is_not_null())
    size = text.expr.str.len_chars().cast(pl.Int64)
    if not isinstance(part, ast.Slice):
        number = whole_number(part)
        found = text.expr.str.slice(number, 1)
        return text.then(found, None, size > number if number >= 0 else size >= -number)
    low, high = (None if each is None else whole_number(each) for each in (part.lower, part.upper))
    if part.step is not None or (low is not None and high is not None and (low < 0 or high < 0)):
        raise NotNative("a slice with a step, or with two bounds from the end")
    if low is None:
        return text if high is None else text.then(text.expr.str.head(high))
    if high is not None:
        return text.then(text.expr.str.slice(low, max(0, high - low)))
    return text.then(text.expr.str.slice(low) if low >= 0 else text.expr.str.tail(-low))


def whole_number(node: ast.expr) -> int:
    """Return a constant integer.

    Raises:
        NotNative: it is computed.
    """
    match node:
        case ast.Constant(value=int(value)) if type(value) is int and abs(value) < _FACTOR:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if (
            type(value) is int and value < _FACTOR
        ):
            return -value
    raise NotNative("a number that is computed")
