"""Types that state keeps, with their values."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import strategies as st

Values = st.SearchStrategy[Any]
INSTANT = pl.Datetime("us", "UTC")
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=UTC))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
SCALE = 5
DIGITS = st.integers(-(10**28) + 1, 10**28 - 1).map(lambda digits: Decimal(digits).scaleb(-SCALE))

SIMPLE: dict[Any, Values] = {
    pl.Int64(): st.integers(-(2**63), 2**63 - 1),
    pl.Int32(): st.integers(-(2**31), 2**31 - 1),
    pl.Int16(): st.integers(-(2**15), 2**15 - 1),
    pl.Int8(): st.integers(-128, 127),
    pl.UInt64(): st.integers(0, 2**64 - 1),
    pl.UInt32(): st.integers(0, 2**32 - 1),
    pl.UInt16(): st.integers(0, 2**16 - 1),
    pl.UInt8(): st.integers(0, 255),
    pl.Float64(): FLOATS,
    pl.Float32(): st.floats(width=32),
    pl.Boolean(): st.booleans(),
    pl.String(): TEXTS,
    pl.Binary(): st.binary(max_size=12),
    INSTANT: TIMES,
    pl.Date(): st.dates(),
    pl.Decimal(28, SCALE): DIGITS,
}


def null_or(values: Values) -> Values:
    return st.none() | values


def nested(kind: Any, values: Values) -> list[tuple[Any, Values]]:
    """Return the types made of a type, with their values."""
    pairs = pl.Struct({"key": pl.String(), "value": kind})
    parts = st.fixed_dictionaries({"key": null_or(TEXTS), "value": null_or(values)})
    return [
        (pl.List(kind), st.lists(null_or(values), max_size=4)),
        (pl.List(pl.List(kind)), st.lists(null_or(st.lists(null_or(values), max_size=3)), max_size=3)),
        (pl.Array(kind, 3), st.lists(null_or(values), min_size=3, max_size=3)),
        (pl.List(pl.Array(kind, 2)), st.lists(null_or(st.lists(null_or(values), min_size=2, max_size=2)), max_size=3)),
        (pairs, parts),
        (pl.List(pairs), st.lists(null_or(parts), max_size=3)),
    ]


SIMPLE_TYPES = list(SIMPLE.items())
ALL_TYPES = SIMPLE_TYPES + [pair for item in SIMPLE_TYPES for pair in nested(*item)]


def column(kind: Any, values: list[Any]) -> pl.Series:
    return pl.Series("v", values, dtype=kind)


def bits(value: Any) -> Any:
    """Return a value such that equality is equality to the bit."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return {name: bits(part) for name, part in value.items()}
    if isinstance(value, list | pl.Series):
        return [bits(part) for part in value]
    return value
