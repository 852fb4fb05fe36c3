"""The step that converts values to another type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import polars as pl

from umbel.transform.native import ColumnKind, Native, NotNative
from umbel.transform.parameters import parameter
from umbel.transform.registry import TransformStep, step
from umbel.transform.steps.text import contains
from umbel.transform.steps.times import RFC_3339, instant_of, parsed
from umbel.transform.values import dump, instant_text

_DIGITS = 4300
"""The longest integer, as Python limits those of texts."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TRUE, FALSE = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")
_INT, _FLOAT = "-?[0-9]{1,18}", r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?"


def _int(value: Any) -> int:
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() >= _DIGITS:
        raise ValueError(f"{value!s:.60} has more than {_DIGITS} digits")  # to write them out could take days
    if isinstance(value, str | int | float | Decimal):
        return int(value)
    raise _no("an integer", value)


def _float(value: Any) -> float:
    if isinstance(value, str | int | float | Decimal):
        return float(value)
    raise _no("a number", value)


def _str(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, date | Decimal):
        return str(value)
    return dump(value).decode()


def _bool(value: Any) -> bool:
    if isinstance(value, bool | int | float | Decimal):
        return bool(value)
    if isinstance(value, str):
        word = value.strip().lower()
        if word in TRUE + FALSE:
            return word in TRUE
        raise ValueError(f"{value!r:.60} is neither true nor false")
    raise _no("a truth value", value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, str | int | float | Decimal):
        try:
            return Decimal(str(value))
        except InvalidOperation:
            raise ValueError(f"{value!r:.60} is no decimal") from None
    raise _no("a decimal", value)


def _date(value: Any) -> date:
    return instant_of(value).date()


def _epoch(unit: timedelta) -> Callable[[Any], int]:
    return lambda value: (instant_of(value) - EPOCH) // unit


_CASTS: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "float": _float,
    "str": _str,
    "bool": _bool,
    "decimal": _decimal,
    "datetime": instant_of,
    "date": _date,
    "epoch_s": _epoch(timedelta(seconds=1)),
    "epoch_ms": _epoch(timedelta(milliseconds=1)),
}


@step
class CastStep(TransformStep):
    """Convert a value to another type.

    `int` of a number drops its fraction; `bool` of a text reads true, t, yes, y, on, 1 and their opposites. Instants are read
    from texts (RFC 3339, RFC 2822) and epochs (s, ms, µs, ns by magnitude), and written as RFC 3339 in UTC; decimals are
    written as texts.
    """

    name = "cast"
    type: str = parameter("The type to convert to.", choices=tuple(_CASTS))

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        return _CASTS[self.type](value)

    def native(self, value: Native) -> Native:
        found = _NATIVE.get((value.kind, self.type))
        if found is None:
            raise NotNative(f"cast of {value.kind.value} to {self.type}")
        return found(value)


def _no(what: str, value: Any) -> TypeError:
    return TypeError(f"expected {what}, found {type(value).__name__}")


def _same(value: Native) -> Native:
    return value


def _plain_cast(kind: ColumnKind) -> Callable[[Native], Native]:
    return lambda value: value.then(value.expr.cast(kind.polars), kind)


def _number(kind: ColumnKind, pattern: str) -> Callable[[Native], Native]:
    def cast(value: Native) -> Native:
        return value.then(value.expr.cast(kind.polars, strict=False), kind, contains(value.expr, pattern))

    return cast


def _truncated(value: Native) -> Native:
    return value.then(value.expr.cast(pl.Int64, strict=False), ColumnKind.INT, value.expr.abs() < 2**62)


def _word(value: Native) -> Native:
    return value.then(pl.when(value.expr).then(pl.lit("true")).when(~value.expr).then(pl.lit("false")), ColumnKind.TEXT)


def _said(value: Native) -> Native:
    is_true, is_false = (value.expr.is_in(words) for words in (list(TRUE), list(FALSE)))
    return value.then(is_true, ColumnKind.BOOL, is_true | is_false)


def _instant(value: Native) -> Native:
    return parsed(value, RFC_3339)


def _count(unit: int) -> Callable[[Native], Native]:
    def cast(value: Native) -> Native:
        instant = parsed(value, RFC_3339) if value.kind is ColumnKind.TEXT else value
        micros = instant.then(instant.expr.dt.timestamp("us"), ColumnKind.INT).shared()
        return micros.then(micros.expr // unit, None, micros.expr >= 0)

    return cast


_NATIVE: dict[tuple[ColumnKind, str], Callable[[Native], Native]] = {
    **{
        (kind, kind.value): _same
        for kind in (ColumnKind.TEXT, ColumnKind.INT, ColumnKind.FLOAT, ColumnKind.BOOL, ColumnKind.INSTANT)
    },
    (ColumnKind.TEXT, "int"): _number(ColumnKind.INT, _INT),
    (ColumnKind.TEXT, "float"): _number(ColumnKind.FLOAT, _FLOAT),
    (ColumnKind.TEXT, "bool"): _said,
    (ColumnKind.TEXT, "datetime"): _instant,
    (ColumnKind.TEXT, "epoch_s"): _count(1_000_000),
    (ColumnKind.TEXT, "epoch_ms"): _count(1_000),
    (ColumnKind.INT, "float"): _plain_cast(ColumnKind.FLOAT),
    (ColumnKind.INT, "str"): _plain_cast(ColumnKind.TEXT),
    (ColumnKind.INT, "bool"): _plain_cast(ColumnKind.BOOL),
    (ColumnKind.FLOAT, "int"): _truncated,
    (ColumnKind.FLOAT, "bool"): _plain_cast(ColumnKind.BOOL),
    (ColumnKind.BOOL, "int"): _plain_cast(ColumnKind.INT),
    (ColumnKind.BOOL, "float"): _plain_cast(ColumnKind.FLOAT),
    (ColumnKind.BOOL, "str"): _word,
    (ColumnKind.INSTANT, "epoch_s"): _count(1_000_000),
    (ColumnKind.INSTANT, "epoch_ms"): _count(1_000),
}
