from datetime import UTC, datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest

from umbel.types.epochs import from_number, from_numbers, from_text, from_texts


def us(*args):
    return (datetime(*args, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


NUMBERS = [
    (0, us(1970, 1, 1)),
    (1_700_000_000, us(2023, 11, 14, 22, 13, 20)),
    (1_700_000_000_123, us(2023, 11, 14, 22, 13, 20, 123_000)),
    (1_700_000_000_123_456, us(2023, 11, 14, 22, 13, 20, 123_456)),
    (1_700_000_000_123_456_789, us(2023, 11, 14, 22, 13, 20, 123_456)),
    (-1, us(1969, 12, 31, 23, 59, 59)),
    (-1_700_000_000_000_000_001, -1_700_000_000_000_001),
    (9_223_372_036, us(2262, 4, 11, 23, 47, 16)),
    (9_223_372_037, 9_223_372_037_000),
    (2**63 - 1, (2**63 - 1) // 1000),
    (-(2**63), None),
]
TEXTS = [
    ("2024-01-31", us(2024, 1, 31)),
    ("2024-01-31T10:20", us(2024, 1, 31, 10, 20)),
    ("2024-01-31 10:20:30", us(2024, 1, 31, 10, 20, 30)),
    ("2024-01-31T10:20:30Z", us(2024, 1, 31, 10, 20, 30)),
    ("2024-01-31t10:20:30z", us(2024, 1, 31, 10, 20, 30)),
    ("2024-01-31 10:20:30 UTC", us(2024, 1, 31, 10, 20, 30)),
    ("2024-01-31T10:20:30.5+02:00", us(2024, 1, 31, 8, 20, 30, 500_000)),
    ("2024-01-31T10:20:30.123456789-0530", us(2024, 1, 31, 15, 50, 30, 123_456)),
    ("2024-01-31T10:20:30+02", us(2024, 1, 31, 8, 20, 30)),
    ("2016-12-31T23:59:60Z", us(2017, 1, 1)),
    ("2016-12-31T23:59:60+00", us(2017, 1, 1)),
    (" 2024-01-31 ", us(2024, 1, 31)),
    ("Wed, 31 Jan 2024 10:20:30 +0200", us(2024, 1, 31, 8, 20, 30)),
    ("Wed, 31 Jan 2024 10:20:30 GMT", us(2024, 1, 31, 10, 20, 30)),
    ("31 Jan 2024 10:20:30 EST", us(2024, 1, 31, 15, 20, 30)),
    ("Wed, 31 Jan 2024 10:20 PST", us(2024, 1, 31, 18, 20)),
    ("Wed, 31 Jan 2024 10:20:30 -0000 (comment)", us(2024, 1, 31, 10, 20, 30)),
    ("Wed, 31 Jan 2024 10:20:30", us(2024, 1, 31, 10, 20, 30)),
    ("1700000000", 1_700_000_000_000_000),
    ("1700000000.25", 1_700_000_000_250_000),
    ("1700000000123", 1_700_000_000_123_000),
    ("-1.5", -1_500_000),
    ("", None),
    ("yesterday", None),
    ("2024-02-30", None),
    ("2024-13-01T00:00:00Z", None),
    ("2024-01-31T24:00:00Z", None),
    ("2024-01-31T10:61:00Z", None),
    ("2024-01-31T10:20:61Z", None),
    ("2024-01-31T10:20:30+24:00", None),
    ("2024-01-31T10:20:30 junk", None),
    ("2024-1-1", None),
    ("24-01-01", None),
    ("0000-01-01", None),
    ("0001-01-01T00:00:00+10:00", None),
    ("9999-12-31T23:59:59-10:00", None),
    ("12:00", None),
    ("Wed, 31 Jan 2024 10:20:30 CEST", us(2024, 1, 31, 8, 20, 30)),
    ("Wed, 31 Jan 2024 10:20:30 XYZ", None),
    ("Wed, 31 Foo 2024 10:20:30 GMT", None),
    ("1e9", None),
    ("nan", None),
    ("99999999999999999999", None),
]


@pytest.mark.parametrize(("number", "expected"), NUMBERS)
def test_numbers(number, expected):
    assert from_number(number) == expected
    assert from_number(Decimal(number)) == expected


def test_columns_of_numbers():
    numbers = [number for number, _ in NUMBERS]
    assert from_numbers(pl.Series(numbers)).to_list() == [expected for _, expected in NUMBERS]
    assert from_numbers(pl.Series([2**64 - 1, None], dtype=pl.UInt64)).to_list() == [None, None]


@pytest.mark.parametrize("last", [9_223_372_036, 9_223_372_036_000, 9_223_372_036_000_000, 2**63 - 1])
def test_columns_of_one_unit(last):
    """The largest number of each unit, beside smaller ones, null and the next larger one."""
    for numbers in ([last, last - 1, None], [last // 2, last], [last, 0], [last, -1], [min(last + 1, 2**63 - 1), last]):
        expected = [None if each is None else from_number(each) for each in numbers]
        assert from_numbers(pl.Series(numbers, dtype=pl.Int64)).to_list() == expected


def test_columns_of_floats():
    floats = [1_700_000_000.25, 1.5e12, 1.5e15, 1.5e18, -0.5, 1e300, float("inf"), None]
    assert from_numbers(pl.Series(floats)).to_list() == [
        1_700_000_000_250_000, 1_500_000_000_000_000, 1_500_000_000_000_000, 1_500_000_000_000_000, -500_000,
        None, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_texts(text, expected):
    assert from_text(text) == expected


def test_columns_of_texts():
    texts = [text for text, _ in TEXTS]
    assert from_texts(pl.Series([*texts, None])).to_list() == [*(expected for _, expected in TEXTS), None]
    for text, expected in TEXTS:
        assert from_texts(pl.Series([text])).to_list() == [expected]
    assert from_texts(pl.Series([], dtype=pl.String)).to_list() == []
