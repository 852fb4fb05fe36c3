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


def _property(unit: str) -> Function:
    def build(value: Instant, site: Site) -> Whole:
        return _PARTS[unit](_seen(value, site.zone))

    build.__doc__ = f"Return the {unit}{' of the ISO calendar' if unit == 'week' else ''}, in the zone of `with_tz`."
    return Function("dt", unit, build, "attribute")


for _unit in _PARTS:
    register(_property(_unit))


@method()
def parts(value: Instant, unit: PartUnit, timezone: Zone = "UTC") -> Whole:
    """Return one part of an instant as seen in a time zone; a week is that of the ISO calendar."""
    return _PARTS[unit](_seen(value, timezone))


@method(views="timezone")
def with_tz(value: Instant, timezone: Zone) -> Instant:
    """See the instant in a time zone: for the parts and `strftime` that follow."""
    return value


def _micros(value: pl.Expr) -> pl.Expr:
    return value.dt.epoch("us")


@method()
def since(value: Instant, other: Instant, unit: SpanUnit = "second") -> Whole:
    """Return the whole units between two instants, truncated toward zero; a year is 365 days."""
    return (_micros(value) - _micros(other)).truncdiv(MICROSECONDS[unit])


@method()
def since_epoch(value: Instant, unit: SpanUnit = "second") -> Whole:
    """Return the whole units since 1970-01-01 UTC, truncated toward zero; a year is 365 days."""
    return _micros(value).truncdiv(MICROSECONDS[unit])


@method()
def strftime(value: Instant, format: OutputFormat, site: Site) -> Text:
    """Write the instant in a format, as seen in the zone of `with_tz`."""
    return _seen(value, site.zone).dt.strftime(format)
