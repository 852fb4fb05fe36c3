"""Columns converted at once have the values and errors of their values converted one by one."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel.types.dtypes import Date, Decimal, DType, Int

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
