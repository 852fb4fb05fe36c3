"""Parsing of RFC 2822 instants: `Sun, 23 Jan 2000 01:23:45 JST`."""

from __future__ import annotations

import re

import polars as pl

from umbel.types.zones import offset_of

SECOND = 1_000_000
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tues?", "wed(?:nes)?", "thu(?:rs)?", "fri", "sat(?:ur)?", "sun")
_TEXT = (
    rf"\s*(?:(?:{'|'.join(_WEEKDAYS)})(?:day)?\s*,?\s+)?(?P<day>[0-9]{{1,2}})\s+(?P<month>{'|'.join(_MONTHS)})\s+"
    r"(?P<year>[0-9]{2,4})\s+(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?"
    r"(?:\s+(?:(?P<sign>[+-])(?P<hours>[0-9]{2})(?P<minutes>[0-9]{2})|(?P<name>[a-z]{1,5})))?"
)
_COMMENT = r"(?:\s*\([^()]*\))?\s*"
# ASCII letters only: "ſ" and the Kelvin sign do not match s and K, in spite of case folding.
_COLUMN = f"^(?i-u:{_TEXT})(?u:{_COMMENT})$"
_ONE = re.compile(_TEXT + _COMMENT, re.IGNORECASE | re.ASCII)


def instants(texts: pl.Series) -> pl.Series:
    """Return the instants of a column of text in µs since the epoch.

    Other text and unknown zones become null. No zone means UTC. Years of two digits are those from 1950 to 2049, of three
    those after 1900, as the RFC says.
    """
    parts = texts.rename("text").str.extract_groups(_COLUMN).struct.unnest()
    number = {name: pl.col(name).cast(pl.Int32, strict=False) for name in ("day", "year", "hour", "minute", "second")}
    long = pl.col("year").str.len_bytes()
    year = number["year"] + pl.when(long == 4).then(0).when((long == 2) & (number["year"] < 50)).then(2000).otherwise(
        1900
    )
    month = (
        pl.col("month").str.to_lowercase().replace_strict(_MONTHS, range(1, 13), default=None, return_dtype=pl.Int32)
    )
    day = pl.format("{}-{}-{}", *(_padded(part, width) for part, width in ((year, 4), (month, 2), (number["day"], 2))))
    date = day.str.to_date("%Y-%m-%d", strict=False).cast(pl.Int64) * 86_400
    second = number["second"].fill_null(0)
    fits = (number["hour"] < 24) & (number["minute"] < 60) & (second <= 60)
    local = date + (number["hour"] * 60 + number["minute"]).cast(pl.Int64) * 60 + second
    return parts.select(pl.when(fits).then((local - _offset(parts)) * SECOND).alias(texts.name)).to_series()


def _padded(part: pl.Expr, width: int) -> pl.Expr:
    return part.cast(pl.String).str.zfill(width)


def _offset(parts: pl.DataFrame) -> pl.Expr:
    """Return each row's UTC offset in seconds, null for unknown zones."""
    names = parts["name"].drop_nulls().unique().to_list()
    named = pl.col("name").replace_strict(
        names, [offset_of(name) for name in names], default=None, return_dtype=pl.Int64
    )
    hours, minutes = (pl.col(name).cast(pl.Int64) for name in ("hours", "minutes"))
    numeric = pl.when((hours < 24) & (minutes < 60)).then((hours * 60 + minutes) * 60)
    return (
        pl.when(pl.col("sign") == "+").then(numeric).when(pl.col("sign") == "-").then(-numeric)
        .when(pl.col("name").is_not_null()).then(named).otherwise(0)
    )  # fmt: skip


def unknown_zone(text: str) -> str | None:
    """Return the unknown time zone name of an otherwise valid RFC 2822 text.

    >>> unknown_zone("Sun, 23 Jan 2000 01:23:45 XYZ")
    'XYZ'
    """
    match = _ONE.fullmatch(text)
    name = match["name"] if match else None
    return name if name is not None and offset_of(name) is None else None
