"""Functions of datetimes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Optional
from zoneinfo import ZoneInfo

import pytest

from tests.unit.expr.table import check, refused
from umbel.expr import Expr, TimeUnit, col, lit, now
from umbel.expr import datetime as moment

T, U = col("t"), col("u")
INSTANT = datetime(2024, 12, 30, 23, 58, 7, 123456, tzinfo=UTC)
ONE = {"t": (datetime, [INSTANT])}
NULLS = {"t": (Optional[datetime], [INSTANT, None])}
TOKYO = INSTANT.astimezone(ZoneInfo("Asia/Tokyo"))

PARTS = {
    "year": 2024,
    "month": 12,
    "week": 1,
    "day": 30,
    "hour": 23,
    "minute": 58,
    "second": 7,
    "millisecond": 123,
    "microsecond": 123456,
}


@pytest.mark.parametrize(("unit", "expected"), PARTS.items())
def test_parts(unit: str, expected: int) -> None:
    check(getattr(T.dt, unit), ONE, int, [expected])
    check(T.dt.parts(unit), NULLS, Optional[int], [expected, None])
    check(T.dt.parts(TimeUnit(unit)), ONE, int, [expected])


@pytest.mark.parametrize("unit", ["year", "month", "day", "hour"])
def test_parts_in_a_zone(unit: str) -> None:
    expected = [getattr(TOKYO, unit)]
    check(getattr(T.dt.with_tz("Asia/Tokyo"), unit), ONE, int, expected)
    check(getattr(T.dt.with_tz("Asia/Tokyo").dt, unit), ONE, int, expected)
    check(T.dt.parts(unit, timezone="Asia/Tokyo"), ONE, int, expected)


def before(**span: float) -> datetime:
    return INSTANT - timedelta(**span)


SPANS: list[tuple[datetime, str, int]] = [
    (before(hours=23), "day", 0),
    (before(hours=-23), "day", 0),
    (before(hours=-25), "day", -1),
    (before(hours=25), "day", 1),
    (before(minutes=90), "hour", 1),
    (before(minutes=-90), "hour", -1),
    (before(seconds=90), "minute", 1),
    (before(seconds=1.9), "second", 1),
    (before(seconds=-1.9), "second", -1),
    (before(microseconds=1999), "millisecond", 1),
    (before(microseconds=-5), "microsecond", -5),
    (before(days=13), "week", 1),
    (before(days=729), "year", 1),
    (before(days=-364), "year", 0),
]


@pytest.mark.parametrize(("other", "unit", "expected"), SPANS)
def test_since(other: datetime, unit: str, expected: int) -> None:
    check(T.dt.since(U, unit), {**ONE, "u": (datetime, [other])}, int, [expected])
    check(T.dt.since(lit(other, datetime), TimeUnit(unit)), NULLS, Optional[int], [expected, None])


def test_since_counts_seconds_and_null_gives_null() -> None:
    check(T.dt.since(U), {**ONE, "u": (datetime, [before(minutes=1)])}, int, [60])
    check(T.dt.since(U), {**ONE, "u": (Optional[datetime], [None])}, Optional[int], [None])


EPOCHS = [("second", 1), ("millisecond", 1000), ("microsecond", 1_000_000)]


@pytest.mark.parametrize(("unit", "factor"), EPOCHS)
def test_since_epoch(unit: str, factor: int) -> None:
    instants = [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)]
    check(T.dt.since_epoch(unit), {"t": (datetime, instants)}, int, [factor, -factor])


def test_since_epoch_truncates_toward_zero() -> None:
    check(T.dt.since_epoch("day"), {"t": (datetime, [datetime(1969, 12, 31, 1, tzinfo=UTC)])}, int, [0])
    check(T.dt.since_epoch(), ONE, int, [int(INSTANT.timestamp())])


FORMATS: list[tuple[Expr, str]] = [
    (T.dt.strftime("%Y/%m/%d %H:%M:%S%.6f"), "2024/12/30 23:58:07.123456"),
    (T.dt.with_tz("Asia/Tokyo").strftime("%Y-%m-%d %H:%M %z"), "2024-12-31 08:58 +0900"),
    (T.dt.strftime("%G-W%V"), "2025-W01"),
]


@pytest.mark.parametrize(("expr", "expected"), FORMATS, ids=str)
def test_strftime(expr: Expr, expected: str) -> None:
    check(expr, ONE, str, [expected])
    check(expr, NULLS, Optional[str], [expected, None])


def test_a_zone_is_a_view_and_no_part_of_the_value() -> None:
    check(T.dt.with_tz("Asia/Tokyo"), ONE, datetime, [INSTANT])
    check(T.dt.with_tz("Asia/Tokyo") == T, ONE, bool, [True])
    check(T.dt.with_tz("Asia/Tokyo").since(T), ONE, int, [0])
    check(T.dt.with_tz("Asia/Tokyo").fillnull(T).dt.day, ONE, int, [30])


def test_now_is_one_instant() -> None:
    check(now().dt.since(now(), "microsecond"), ONE, int, [0])


@pytest.mark.parametrize(
    ("expr", "columns", "texts"),
    [
        (col("d").dt.year, {"d": (date, [])}, ["dt.year", "date"]),
        (col("d").dt.strftime("%Y"), {"d": (str, [])}, ["dt.strftime", "str"]),
        (T.dt.since(1), ONE, ["dt.since", "int", "datetime"]),
        (T.dt.since_epoch() + "x", ONE, ["'+'", "str"]),
        (T.dt.strftime("%Q"), ONE, ["%Q"]),
        (T.dt.with_tz("+05:30").year, ONE, ["+05:30"]),
        (T.dt.with_tz("Nowhere"), ONE, ["Nowhere"]),
        (T.dt.parts("day", "Nowhere"), ONE, ["Nowhere"]),
        (moment(2024, 2, 30), ONE, ["datetime", "day"]),
        (moment(2024, 1, 1, timezone="+05:30"), ONE, ["+05:30"]),
        (moment(2024, 1, 1, hour=24), ONE, ["datetime", "hour"]),
    ],
    ids=str,
)
def test_refused_when_typed(expr: Expr, columns: Any, texts: list[str]) -> None:
    refused(expr, columns, *texts)


@pytest.mark.parametrize("unit", ["month", "hours", "fortnight", ""])
def test_unknown_units_are_refused_at_once(unit: str) -> None:
    with pytest.raises(ValueError, match="unit"):
        T.dt.since(U, unit)
    with pytest.raises(ValueError, match="unit"):
        T.dt.since_epoch(unit)


def test_unknown_part() -> None:
    with pytest.raises(ValueError, match="did you mean 'hour'"):
        T.dt.parts("hours")
