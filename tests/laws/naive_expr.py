"""Expressions in plain Python, one row at a time: what the vectorised ones are compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from umbel.expr.call import Call
from umbel.expr.conditional import When
from umbel.expr.leaves import Col
from umbel.expr.literal import Literal
from umbel.expr.tree import Expr


class NoValue(Exception):
    """The expression has no value on the row."""


def fitting(value: Any) -> Any:
    """Refuse ints of more than 64 bits."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise NoValue
    return value


def promoted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let two numbers be floats when one is."""

    def run(*values: Any) -> Any:
        if any(isinstance(value, float) for value in values):
            values = tuple(float(value) for value in values)
        return fitting(function(*values))

    return run


def divided(a: float, b: float) -> float:
    a, b = float(a), float(b)
    if b:
        return a / b
    return math.nan if not a or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def floored(a: Any, b: Any) -> Any:
    if isinstance(a, float) and b == 0:
        return divided(a, b)
    if b == 0:
        raise NoValue
    return a // b


def remainder(a: int, b: int) -> int:
    if b == 0:
        raise NoValue
    return a % b


def whole(rounding: Callable[[float], int]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        if isinstance(value, float) and math.isnan(value):
            return None
        if isinstance(value, float) and math.isinf(value):
            raise NoValue
        return fitting(rounding(value))

    return run


def away_from_zero(value: float) -> int:
    return int(math.copysign(math.floor(abs(value) + 0.5), value)) if abs(value) < 2**52 else int(value)


def split(text: str, sep: str) -> list[str]:
    return text.split(sep) if sep else list(text)


def contained(items: list[Any], item: Any) -> bool | None:
    if not items:
        return False
    if item is None:
        return None
    return True if item in [each for each in items if each is not None] else None if None in items else False


def unless_null(function: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda items: None if None in items else function(items)


def at(items: list[Any], index: int) -> Any:
    return items[index] if -len(items) <= index < len(items) else None


def any_of(items: list[Any]) -> bool | None:
    return True if True in items else None if None in items else False


STRICT: dict[str, Callable[..., Any]] = {
    "add": promoted(lambda a, b: a + b),
    "sub": promoted(lambda a, b: a - b),
    "mul": promoted(lambda a, b: a * b),
    "truediv": divided,
    "floordiv": promoted(floored),
    "mod": promoted(remainder),
    "neg": promoted(lambda a: -a),
    "eq": promoted(lambda a, b: a == b),
    "ne": promoted(lambda a, b: a != b),
    "gt": promoted(lambda a, b: a > b),
    "ge": promoted(lambda a, b: a >= b),
    "lt": promoted(lambda a, b: a < b),
    "le": promoted(lambda a, b: a <= b),
    "invert": lambda a: not a,
    "num.abs": promoted(abs),
    "num.floor": whole(math.floor),
    "num.ceil": whole(math.ceil),
    "str.lower": str.lower,
    "str.upper": str.upper,
    "str.len": len,
    "str.concat": str.__add__,
    "str.contains": str.__contains__,
    "str.startswith": str.startswith,
    "str.endswith": str.endswith,
    "str.split": split,
    "list.len": len,
    "list.sum": unless_null(lambda items: fitting(sum(items))),
    "list.min": unless_null(lambda items: min(items, default=None)),
    "list.max": unless_null(lambda items: max(items, default=None)),
    "list.mean": unless_null(lambda items: sum(items) / len(items) if items else None),
    "list.all": unless_null(all),
    "list.any": any_of,
    "list.hasnull": lambda items: None in items,
    "list.at": at,
}


def value(expr: Expr, row: Mapping[str, Any]) -> Any:
    """Return the value of an expression on a row; raise NoValue where there is none."""
    if isinstance(expr, Col):
        return row[expr.name]
    if isinstance(expr, Literal):
        return expr.value
    if isinstance(expr, When):
        return _choice(expr, row)
    assert isinstance(expr, Call)
    return _call(expr, row)


def _choice(expr: When, row: Mapping[str, Any]) -> Any:
    for condition, result in expr.branches:
        if value(condition, row) is True:
            return value(result, row)
    return None if expr.default is None else value(expr.default, row)


def _call(expr: Call, row: Mapping[str, Any]) -> Any:
    key = expr.function.key
    first, *rest = expr.operands
    left = value(first, row)
    if key == "isnull":
        return left is None
    if key == "fillnull":
        return value(rest[0], row) if left is None else left
    if key in {"and", "or"}:
        decisive = key == "or"
        if left is decisive:
            return decisive
        right = value(rest[0], row)
        return decisive if right is decisive else None if left is None or right is None else not decisive
    others = [value(operand, row) for operand in rest]
    if key == "list.contains":
        return None if left is None else contained(left, others[0])
    if left is None or None in others:
        return None
    if key == "num.round":
        assert expr.constant("precision") == 0
        return whole(away_from_zero)(left)
    return STRICT[key](left, *others)
