"""Casts to the types of a destination's columns: nothing is lost silently."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from umbel.connectors.column_fit import fitted
from umbel.connectors.sinks import RowsRefused
from umbel.errors import InvalidValue

INT, FLOAT, TEXT, AT = pa.int64(), pa.float64(), pa.large_string(), pa.timestamp("us", "UTC")
NOON, MIDNIGHT = (datetime(2026, 3, 1, hour, tzinfo=UTC) for hour in (12, 0))


def fit(value: Any, dtype: pa.DataType, to: pa.DataType) -> Any:
    return fitted(pa.chunked_array([pa.array([None, value], dtype)]), to, "column 'v'").to_pylist()[1]


@pytest.mark.parametrize(
    ("value", "dtype", "to", "found"),
    [
        (300, INT, pa.int16(), 300),
        (2.0, FLOAT, pa.int32(), 2),
        (1, INT, pa.bool_(), True),
        (7, INT, pa.string(), "7"),
        ("a", TEXT, pa.string(), "a"),
        (0.5, FLOAT, pa.float32(), 0.5),
        (math.inf, FLOAT, pa.float32(), math.inf),
        (Decimal("1.50"), pa.decimal128(38, 2), pa.decimal128(5, 2), Decimal("1.50")),
        (Decimal("1.50"), pa.decimal128(38, 2), pa.decimal128(5, 1), Decimal("1.5")),
        (MIDNIGHT, AT, pa.date32(), date(2026, 3, 1)),
        (NOON, AT, pa.timestamp("us"), NOON.replace(tzinfo=None)),
        ([1], pa.large_list(INT), pa.list_(pa.int32()), [1]),
        ({"a": 1}, pa.struct({"a": INT}), pa.struct({"b": INT}), {"a": 1}),
        ([[1]], pa.list_(pa.list_(INT)), pa.list_(INT), [[1]]),
    ],
)
def test_a_value_that_the_type_holds_is_cast(value: Any, dtype: pa.DataType, to: pa.DataType, found: Any) -> None:
    assert fit(value, dtype, to) == found


def test_a_float_is_rounded_to_a_shorter_one() -> None:
    assert fit(0.1, FLOAT, pa.float32()) == pytest.approx(0.1, rel=1e-7)
    assert math.isnan(fit(math.nan, FLOAT, pa.float32()))


@pytest.mark.parametrize(
    ("value", "dtype", "to"),
    [
        (300, INT, pa.int8()),
        (1.5, FLOAT, pa.int32()),
        (math.nan, FLOAT, pa.int64()),
        (2, INT, pa.bool_()),
        (1e300, FLOAT, pa.float32()),
        ((1 << 60) + 1, INT, FLOAT),
        (1.25, FLOAT, pa.decimal128(5, 1)),
        (Decimal("1.25"), pa.decimal128(38, 2), pa.decimal128(5, 1)),
        (Decimal("12345.00"), pa.decimal128(38, 2), pa.decimal128(5, 2)),
        (NOON, AT, pa.date32()),
        ("x", TEXT, pa.date32()),
        ([1 << 40], pa.large_list(INT), pa.list_(pa.int32())),
    ],
)
def test_a_value_that_it_does_not_hold_is_refused(value: Any, dtype: pa.DataType, to: pa.DataType) -> None:
    with pytest.raises(RowsRefused, match="column 'v' of type"):
        fit(value, dtype, to)


@pytest.mark.parametrize(("dtype", "to"), [(pa.list_(INT), INT), (AT, pa.bool_()), (INT, pa.list_(INT))])
def test_a_type_without_such_values_is_an_error_before_there_is_a_row(dtype: pa.DataType, to: pa.DataType) -> None:
    with pytest.raises(InvalidValue, match="column 'v' is of type") as found:
        fitted(pa.chunked_array([pa.array([], dtype)]), to, "column 'v'")
    assert not isinstance(found.value, RowsRefused)
