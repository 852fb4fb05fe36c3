"""Columns converted at once have the values and errors of their values converted one by one."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel.types.dtypes import Date, Datetime, Decimal, DType, Float, Int, Optional, Struct

WIDE = decimal.Context(prec=80)
PRECISIONS = [(10, 2), (28, 2), (38, 0), (38, 4), (38, 30), (20, 20), (38, 38)]
DAYS = [
    "2026-01-01",
    "0000-01-01",
    "0001-01-01",
    "9999-12-31",
    "2026-02-30",
    "2026-1-1",
    " 2026-01-01",
    "2026-01-01\n",
    "-2026-01-01",
    "２０２６-01-01",
    "20260101",
    "2026-01-01T00:00:00Z",
    "",
    None,
]


def check(dtype: DType, column: pl.Series) -> None:
    at_once, each = dtype.convert_column(column), dtype.convert_each(column.to_list())
    assert (at_once.values.to_list(), at_once.errors) == (each.values.to_list(), each.errors)


@pytest.mark.parametrize("dtype", [Int(), Decimal(1), Decimal(2), Decimal(5), Decimal(28)], ids=str)
@pytest.mark.parametrize(("precision", "scale"), PRECISIONS)
@given(data=st.data())
def test_decimals_of_other_scales(dtype: DType, precision: int, scale: int, data: st.DataObject) -> None:
    most = 10**precision - 1
    units = st.integers(-most, most) | st.integers(-1000, 1000).map(lambda n: n * 10 ** max(0, precision - 4))
    values: Sequence[Any] = data.draw(st.lists(st.none() | units, max_size=20))
    scaled = [None if each is None else decimal.Decimal(each).scaleb(-scale, WIDE) for each in values]
    check(dtype, pl.Series(scaled, dtype=pl.Decimal(precision, scale)))


def test_days_as_text() -> None:
    check(Date(), pl.Series(DAYS, dtype=pl.String))
    for each in DAYS:
        check(Date(), pl.Series([each], dtype=pl.String))


def check_objects(dtype: DType, values: Sequence[Any]) -> None:
    at_once, each = dtype.convert_objects(values), [dtype.convert_objects([value]) for value in values]
    assert at_once.values.to_list() == [one.values[0] for one in each]
    assert at_once.errors == {row: one.errors[0] for row, one in enumerate(each) if one.errors}


@pytest.mark.parametrize("dtype", [Decimal(1), Decimal(2), Decimal(28)], ids=str)
@pytest.mark.parametrize("numbers", [st.decimals(), st.integers(-(2**70), 2**70), st.integers(-(10**6), 10**6)])
@given(data=st.data())
def test_decimals_of_python(dtype: DType, numbers: st.SearchStrategy[Any], data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | numbers, max_size=5))
    found, each = dtype.convert_objects(values), dtype.convert_each(values)
    assert (found.values.to_list(), found.errors) == (each.values.to_list(), each.errors)


@pytest.mark.parametrize("text", ["9.999999999999959515047709900864E-30", "1.0000000000000000E-61", "1E-39", "1E-28"])
def test_tiny_decimals_of_python(text: str) -> None:
    """Arrow took some of them for 0."""
    check_objects(Decimal(2), [None, decimal.Decimal(text)])
    assert list(Decimal(2).convert_objects([None, decimal.Decimal(text)]).errors) == [1]


@given(st.lists(st.none() | st.datetimes(timezones=st.none() | st.timezones()), max_size=5))
def test_instants_of_python(values: list[Any]) -> None:
    check_objects(Datetime(), [*values, dt.datetime.min])
    check_objects(Datetime(), [*values, dt.datetime.max.replace(tzinfo=dt.timezone(-dt.timedelta(hours=1)))])


@dataclass
class Amount:
    units: Any
    real: Any = None


AMOUNT = Struct("Amount", (("units", Int()), ("real", Optional(Float()))))
ROWS: list[Any] = [
    {"units": 1},
    {"units": "x", "real": 2.0},
    {},
    Amount(1, 2.5),
    Amount("x"),
    None,
    1.5,
    float("nan"),
    "x",
]


@given(st.lists(st.sampled_from(ROWS), max_size=4) | st.lists(st.sampled_from(ROWS[:3]), max_size=4))
def test_structs_of_python(values: list[Any]) -> None:
    check_objects(AMOUNT, values)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (Decimal(2), decimal.Decimal("1.5")),
        (Decimal(2), 3),
        (Datetime(), dt.datetime(2026, 1, 1)),
        (AMOUNT, {"units": 1}),
        (AMOUNT, Amount(1)),
    ],
    ids=str,
)
def test_values_of_one_class_are_converted_at_once(dtype: DType, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = dtype.convert_objects([value]).values[0]
    for module in ("dtype", "instants", "records"):
        monkeypatch.delattr(f"umbel.types.{module}.present")
    assert dtype.convert_objects([value, None, value]).values.to_list() == [expected, None, expected]
