"""Constant arguments of datetime functions: units of time, time zones and formats."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any

import polars as pl

from umbel.errors import InvalidType, InvalidValue, did_you_mean
from umbel.expr.kinds import Constant


class TimeUnit(StrEnum):
    """Units for parts of instants and lengths of durations."""

    YEAR = "year"
    MONTH = "month"
    WEEK = "week"
    DAY = "day"
    HOUR = "hour"
    MINUTE = "minute"
    SECOND = "second"
    MILLISECOND = "millisecond"
    MICROSECOND = "microsecond"


_SECOND = 1_000_000
# A month has no fixed length; a year counts as 365 days, as in durations.
MICROSECONDS = {
    "year": 365 * 86_400 * _SECOND,
    "week": 7 * 86_400 * _SECOND,
    "day": 86_400 * _SECOND,
    "hour": 3_600 * _SECOND,
    "minute": 60 * _SECOND,
    "second": _SECOND,
    "millisecond": 1_000,
    "microsecond": 1,
}
_SOME_INSTANT = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
EPOCH_UNITS = ("second", "millisecond", "microsecond")


def text(value: Any) -> str:
    """Return a constant as text; raise InvalidType if it is not a str."""
    if not isinstance(value, str):
        raise InvalidType(f"expected a str, found {value!r} ({type(value).__name__})", hint="a text")
    return str(value)


def _one_of(known: tuple[str, ...]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        unit = text(value)
        if unit not in known:
            raise InvalidValue(
                f"unknown time unit '{unit}'{did_you_mean(unit, known)}",
                hint="use day, hour, minute, second, millisecond, microsecond",
            )
        return unit

    return check


@cache
def check_zone(zone: str) -> None:
    """Raise InvalidValue for an unknown time zone name."""
    try:
        pl.Series([], dtype=pl.Datetime("us", "UTC")).dt.convert_time_zone(zone)
    except pl.exceptions.PolarsError:
        raise InvalidValue(
            f"unknown time zone '{zone}'", hint="use an area/location name such as Europe/Paris"
        ) from None


@cache
def check_output_format(template: str) -> None:
    """Raise InvalidValue for a format unusable for writing instants."""
    try:
        pl.Series([0]).cast(pl.Datetime("us", "UTC")).dt.strftime(template)
    except pl.exceptions.PolarsError:
        raise InvalidValue(f"bad datetime format '{template}'", hint='"%Y-%m-%d %H:%M:%S"') from None


def _check_year(template: str) -> None:
    """Raise InvalidValue for an input format without a year."""
    written = pl.Series([_SOME_INSTANT]).dt.strftime(template.replace("%#z", "%z"))
    read = written.str.to_datetime(template, time_unit="us", strict=False).dt.year()[0]
    if read is not None and read != _SOME_INSTANT.year:
        raise InvalidValue(f"the datetime format '{template}' has no year", hint='"%Y-%m-%d %H:%M:%S"')


@cache
def is_zoned(template: str) -> bool:
    """Return True if text in a format contains its time zone.

    Raises:
        InvalidValue: the format cannot be used to parse instants, or has no year.
    """
    check_output_format(template.replace("%#z", "%z"))
    try:
        parsed = pl.Series([None], dtype=pl.String).str.to_datetime(template, time_unit="us", strict=False)
    except pl.exceptions.PolarsError as error:
        raise InvalidValue(f"bad datetime format '{template}': {error}", hint='"%Y-%m-%d %H:%M:%S"') from None
    _check_year(template)
    return isinstance(parsed.dtype, pl.Datetime) and parsed.dtype.time_zone is not None


PartUnit = Annotated[str, Constant("unit", _one_of(tuple(TimeUnit)))]
SpanUnit = Annotated[str, Constant("unit", _one_of(tuple(MICROSECONDS)))]
EpochUnit = Annotated[str, Constant("unit", text, _one_of(EPOCH_UNITS))]
Zone = Annotated[str, Constant("timezone", text, check_zone)]
OutputFormat = Annotated[str, Constant("format", text, check_output_format)]
InputFormat = Annotated[str, Constant("format", text, is_zoned)]
