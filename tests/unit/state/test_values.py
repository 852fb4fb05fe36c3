from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

from umbel.state.runs.block import Block
from umbel.state.runs.points import PointRecords, RowSlice
from umbel.state.values import Values, shown, units


def values_of(values: list[Any], dtype: pl.DataType) -> Values:
    """Return the elements of a stored list."""
    frame = pl.DataFrame({"_hash": [0], "l": [values]}, schema={"_hash": pl.UInt64, "l": pl.List(dtype)})
    records = PointRecords([[RowSlice(Block(frame), 0, 1)]], {"l": pl.List(dtype)})
    return records.lists("l", np.zeros(1, np.int64))[0]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([3, None, 1, 3], pl.Int64()),
        ([0.5, float("nan"), None, -0.5, float("nan")], pl.Float64()),
        (["b", None, "a", "é", "b"], pl.String()),
        ([b"b", None, b"", b"\xff", b"b"], pl.Binary()),
        ([True, False, None], pl.Boolean()),
        ([date(2020, 1, 1), None, date(1, 1, 1)], pl.Date()),
        ([datetime(2020, 1, 1, tzinfo=UTC), None, datetime(1, 1, 1, tzinfo=UTC)], pl.Datetime("us", "UTC")),
        ([Decimal("1.5"), None, Decimal(10) ** 25, Decimal("-0.1")], pl.Decimal(28, 1)),
    ],
)
def test_values_are_ranked_as_polars_sorts_them(values: list[Any], dtype: pl.DataType) -> None:
    different, codes = values_of(values, dtype).ranked()
    column = pl.Series(values, dtype=dtype)
    assert [repr(different[code]) for code in codes] == [repr(value) for value in column.to_list()]
    ordered = [repr(different[code]) for code in sorted(set(codes.tolist()))]
    assert ordered == [repr(value) for value in column.unique().sort().to_list()]


def test_values_are_shown_as_polars_returns_them() -> None:
    days = pl.Series([date(1, 1, 1), date(9999, 12, 31)])
    assert shown(days.to_physical().to_numpy(), pl.Date()) == days.to_list()
    assert list(map(repr, shown(np.array([-125, 0]), pl.Decimal(28, 2)))) == ["Decimal('-1.25')", "Decimal('0.00')"]


def test_units_are_integers_of_64_bits_where_all_fit() -> None:
    def halves(*numbers: int) -> np.ndarray[Any, Any]:
        parts = [[number & (2**64 - 1), number >> 64 & (2**64 - 1)] for number in numbers]
        return np.array(parts, np.uint64).reshape(-1, 2)

    assert units(halves()).dtype == np.int64
    assert units(halves(1, -1, 2**63 - 1, -(2**63))).dtype == np.int64
    for numbers in ([1, -1, 2**63 - 1, -(2**63)], [2**63, 1], [-(2**63) - 1, 0], [10**37, -(10**37)]):
        assert units(halves(*numbers)).tolist() == numbers
