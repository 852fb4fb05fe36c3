"""Instants written as numbers or text, read as microseconds since the Unix epoch, UTC."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import floor

import polars as pl

from umbel.types import rfc2822

SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = -62_135_596_800 * SECOND
LAST = 253_402_300_800 * SECOND - 1
YEARS = "the instant is not in the years 1 to 9999"
"""The reason why an instant before `FIRST` or after `LAST` is refused."""
# The largest number of seconds, milliseconds, microseconds that a 64-bit count of nanoseconds can represent: a number
# above it is read in the next finer unit. Seconds range up to the year 2262, milliseconds back to April 1970.
SECONDS = 9_223_372_036
MILLIS = SECONDS * 1_000
MICROS = SECONDS * SECOND

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_ISO = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ](?P<time>[0-9]{2}:[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?"
    r" ?(?P<zone>[Zz]|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_DATE_ONLY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_NAIVE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?$"
_ZONED = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})$"


def in_utc(instant: datetime) -> datetime:
    """Return an instant in UTC, which is that of one without a zone.

    Raises:
        OverflowError: its offset leads out of the years 1 to 9999.
    """
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def from_number(number: float | Decimal) -> int | None:
    """Return the instant of an epoch number, None if too large.

    The unit (s, ms, µs, ns) is inferred from the magnitude.
    """
    for limit, factor in ((SECONDS, SECOND), (MILLIS, 1_000), (MICROS, 1)):
        if -limit <= number <= limit:  # `abs` of a decimal rounds, and may overflow
            return round(number * factor)
    return floor(Fraction(number) / 1_000) if -(2**63) < number < 2**63 else None


def from_text(text: str) -> int | None:
    """Return the instant of RFC 3339, RFC 2822 or decimal epoch text, else None.

    No zone means UTC.
    """
    found: int | None = from_texts(pl.Series([text]))[0]
    return found


def _from_one(text: str) -> int | None:
    """Return the instant of unusual RFC 3339 or decimal epoch text, else None."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return from_number(Decimal(text))
    try:
        if match := _ISO.fullmatch(text):
            return _from_iso(match)
    except ValueError:
        pass
    return None


def _from_iso(match: re.Match[str]) -> int | None:
    day = datetime.fromisoformat(f"{match['date']}T{match['time'] or '00:00'}:00+00:00")
    second = int(match["second"] or 0)
    if second > 60:
        return None
    micros = int((match["fraction"] or "0")[:6].ljust(6, "0"))
    at = (day - EPOCH) // timedelta(microseconds=1) + second * SECOND + micros - _offset(match["zone"])
    return at if FIRST <= at <= LAST else None


def _offset(zone: str | None) -> int:
    if zone is None or zone in "ZzUTC":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        raise ValueError(zone)
    return (-1 if zone[0] == "-" else 1) * (hours * 60 + minutes) * 60 * SECOND


def from_numbers(column: pl.Series) -> pl.Series:
    """Return the instants of a column of epoch numbers as Int64, else null."""
    if column.dtype.is_float():
        return _from_floats(column.cast(pl.Float64))
    numbers = column.cast(pl.Int64, strict=False)
    scale = _common_scale(numbers)
    if scale is not None:
        return numbers * scale
    size = numbers.set(numbers == -(2**63), None).abs()
    frame = pl.DataFrame({"n": numbers, "size": size})
    n, magnitude = pl.col("n"), pl.col("size")
    unit = (
        pl.when(magnitude <= SECONDS).then(n * SECOND).when(magnitude <= MILLIS).then(n * 1_000)
        .when(magnitude <= MICROS).then(n).when(magnitude.is_not_null()).then(n // 1_000)
    )  # fmt: skip
    return frame.select(unit).to_series()


def _common_scale(numbers: pl.Series) -> int | None:
    """Return the microseconds of the unit of all epoch numbers.

    None if their units differ or are finer.
    """
    least, most = numbers.min(), numbers.max()
    if not isinstance(least, int) or not isinstance(most, int):
        return None
    for bound, finer, scale in ((SECONDS, -1, SECOND), (MILLIS, SECONDS, 1_000), (MICROS, MILLIS, 1)):
        if finer < least and most <= bound:
            return scale
    return None


def _from_floats(column: pl.Series) -> pl.Series:
    import numpy as np  # a worker of `umbel transform` does without it

    numbers = column.fill_nan(None).fill_null(np.inf).to_numpy()
    size = np.abs(numbers)
    with np.errstate(invalid="ignore", over="ignore"):
        units = [size <= SECONDS, size <= MILLIS, size <= MICROS]
        scaled = np.select(units, [numbers * SECOND, numbers * 1_000, numbers], numbers // 1_000)
    known = size < 2.0**63
    micros = pl.Series(np.where(known, np.rint(np.where(known, scaled, 0)), 0).astype(np.int64))
    return micros.set(pl.Series(~known), None)


def from_texts(column: pl.Series) -> pl.Series:
    """Return the instants of a column of text as Int64, else null. See `from_text`."""
    whole = _whole_numbers(column)
    if whole.null_count() == column.null_count():
        return from_numbers(whole)
    if whole.null_count() == len(whole):
        return _from_written(column)
    numbers = from_numbers(whole)
    return numbers.zip_with(whole.is_not_null(), _from_written(column.set(whole.is_not_null(), None)))


def _whole_numbers(column: pl.Series) -> pl.Series:
    """Return the values of whole numbers of up to 18 digits, null for other text."""
    return column.set(column.str.len_bytes() > 18, None).cast(pl.Int64, strict=False)


def _from_written(column: pl.Series) -> pl.Series:
    text = column.rename("text")
    zoned = text.str.contains(_ZONED)
    if not zoned.fill_null(True).all():
        raw = pl.col("text")
        whole = (
            pl.when(zoned).then(raw)
            .when(raw.str.contains(_NAIVE)).then(raw + "Z")
            .when(raw.str.contains(_DATE_ONLY)).then(raw + "T00:00:00Z")
        )  # fmt: skip
        text = text.to_frame().select(whole).to_series()
    at = text.str.to_datetime("%+", time_unit="us", time_zone="UTC", strict=False).to_physical()
    at = _filled(at, column, rfc2822.instants)
    return _filled(at, column, lambda rest: pl.Series(map(_from_one, rest.to_list()), dtype=pl.Int64))


def _filled(at: pl.Series, column: pl.Series, read: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Fill missing instants by a second parser; out-of-range instants become null."""
    at = at.set(~at.is_between(FIRST, LAST), None)
    rest = (at.is_null() & column.is_not_null()).arg_true()
    if not len(rest):
        return at
    found = read(column.gather(rest))
    return at.scatter(rest, found.set(~found.is_between(FIRST, LAST), None))
