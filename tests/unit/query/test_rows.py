"""Columns of Python values do what Polars columns do."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from umbel.query.rows import Plain, filled

CASES: list[tuple[pl.DataType, Any, Any]] = [
    (pl.Int64(), 1, 0),
    (pl.String(), "a", ""),
    (pl.List(pl.Int64()), [1, None], []),
    (pl.List(pl.List(pl.String())), [["a"], []], [["b"]]),
    (pl.Array(pl.Float64(), 2), [1.0, 2.0], [0.0, 0.0]),
    (pl.Struct({"x": pl.List(pl.Int64())}), {"x": [1]}, {"x": []}),
]


@pytest.mark.parametrize(("dtype", "value", "default"), CASES, ids=lambda each: str(each))
def test_defaults_take_the_place_of_nulls(dtype: pl.DataType, value: Any, default: Any) -> None:
    column, instead = pl.Series([value, None], dtype=dtype), pl.Series([default], dtype=dtype)
    found = Plain(column.to_list(), dtype).filled(instead)
    assert list(map(repr, found.to_list())) == list(map(repr, filled(column, instead).to_list()))
    assert found.series.equals(filled(column, instead))
