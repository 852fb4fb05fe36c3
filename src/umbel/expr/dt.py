"""Functions of datetimes: `.dt`."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from umbel.expr.kinds import Instant, Site, Text, Whole
from umbel.expr.registry import Function, method, register
from umbel.expr.units import MICROSECONDS, OutputFormat, PartUnit, SpanUnit, Zone

_PARTS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "year": lambda value: value.dt.year(),
    "month": lambda value: value.dt.month(),
    "week": lambda value: value.dt.week(),
    "day": lambda value: value.dt.day(),
    "hour": lambda value: value.dt.hour(),
    "minute": lambda value: value.dt.minute(),
    "second": lambda value: value.dt.second(),
    "millisecond": lambda value: value.dt.millisecond(),
    "microsecond": lambda value: value.dt.microsecond(),
}


def _seen(value: pl.Expr, zone: str) -> pl.Expr:
    return value if zone == "UTC" else value.dt.convert_time_zone(zone)


def _property(unit: str, example: int) -> Function:
    def build(value: Instant, site: Site) -> Whole:
        return _PARTS[unit](_seen(value, site.zone))

    build.__doc__ = f"""Return the {unit}{" of the ISO calendar" if unit == "week" else ""}, in the zone of `with_tz`.

    >>> values(col("t").dt.{unit}, t=[datetime(2026, 3, 1, 20, 30, 15, 250_000)])
    [{example}]
    """
    return Function("dt", unit, build, "attribute")


for _unit, _example in zip(_PARTS, (2026, 3, 9, 1, 20, 30, 15, 250, 250_000), strict=True):
    register(_property(_unit, _example))


@method()
def parts(value: Instant, unit: PartUnit, timezone: Zone = "UTC") -> Whole:
    """Return one part of an instant in a time zone; weeks are ISO weeks.

    >>> values(col("t").dt.parts("hour", timezone="Asia/Tokyo"), t=[datetime(2026, 3, 1, 20)])
    [5]
    """
    return _PARTS[unit](_seen(value, timezone))


@method(views="timezone")
def with_tz(value: Instant, timezone: Zone) -> Instant:
    """Set the time zone for subsequent parts and `strftime` calls.

    >>> values(col("t").dt.with_tz("Asia/Tokyo").dt.day, t=[datetime(2026, 3, 1, 20)])
    [2]
    """
    return value


def _micros(value: pl.Expr) -> pl.Expr:
    return value.dt.epoch("us")


@method()
def since(value: Instant, other: Instant, unit: SpanUnit = "second") -> Whole:
    """Return the whole units between two instants, truncated toward zero; a year is 365 days.

    >>> values(col("t").dt.since(instant(2026, 3, 1), "hour"), t=[datetime(2026, 3, 1, 20, 30)])
    [20]
    """
    return (_micros(value) - _micros(other)).truncdiv(MICROSECONDS[unit])


@method()
def since_epoch(value: Instant, unit: SpanUnit = "second") -> Whole:
    """Return the whole units since 1970-01-01 UTC, truncated toward zero; a year is 365 days.

    >>> values(col("t").dt.since_epoch("day"), t=[datetime(1970, 1, 3)])
    [2]
    """
    return _micros(value).truncdiv(MICROSECONDS[unit])


@method()
def strftime(value: Instant, format: OutputFormat, site: Site) -> Text:
    """Format the instant as text, in the zone of `with_tz`.

    >>> values(col("t").dt.strftime("%Y-%m"), t=[datetime(2026, 3, 1)])
    ['2026-03']
    """
    return _seen(value, site.zone).dt.strftime(format)
