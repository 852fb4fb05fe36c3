from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

from umbel.aggregates.point_states import PointStates, Spans, counted
from umbel.state.runs.block import Block
from umbel.state.runs.points import PointRecords, RowSlice

GENERATOR = np.random.default_rng(5)


def records_of(values: list[Any], dtype: Any) -> PointRecords:
    """Return the rows of one group with a column `v`."""
    frame = pl.DataFrame({"_hash": [0] * len(values), "v": values}, schema={"_hash": pl.UInt64, "v": dtype})
    return PointRecords([[RowSlice(Block(frame), 0, len(values))]], {"v": dtype})


@pytest.mark.parametrize("sizes", [[0], [1], [300], [0, 7, 0, 1, 200, 9, 0]])
def test_sums_are_those_of_each_question_alone_to_the_bit(sizes: list[int]) -> None:
    owners = np.repeat(np.arange(len(sizes)), sizes)
    values = GENERATOR.standard_normal(len(owners)) * 10.0 ** GENERATOR.integers(-9, 9, len(owners))
    spans = Spans(owners, len(sizes))
    parts = list(spans.parts(values))
    assert [len(part) for part in parts] == sizes
    assert spans.summed(values).tolist() == [part.sum() for part in parts]
    numbers = (values * 100).astype(np.int64)
    assert spans.least(numbers, 2**62).tolist() == [part.min(initial=2**62) for part in spans.parts(numbers)]
    assert spans.largest(numbers, -1).tolist() == [part.max(initial=-1) for part in spans.parts(numbers)]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pl.Decimal(38, 0), [Decimal(10) ** 37, Decimal(10) ** 37, Decimal(-1), Decimal(2**64)]),
        (pl.Decimal(38, 0), [Decimal(2**63 - 1), Decimal(2**63 - 1), Decimal(-1), Decimal(3)]),
        (pl.Decimal(38, 2), [Decimal("-0.01"), Decimal("1.00"), Decimal(-1), Decimal(0)]),
    ],
)
@pytest.mark.parametrize("owners", [[0, 0, 0, 0], [0, 0, 2, 2]])
def test_sums_of_whole_numbers_are_exact(dtype: Any, values: list[Any], owners: list[int]) -> None:
    records = records_of(values, dtype)
    stored = PointStates(np.array(owners), max(owners) + 1, records, np.arange(4))
    scale = 10 ** getattr(dtype, "scale", 0)
    expected = [
        sum(int(value * scale) for value, owner in zip(values, owners, strict=True) if owner == each)
        for each in range(stored.size)
    ]
    assert stored.sums("v").tolist() == expected


@pytest.mark.parametrize(
    ("dtype", "values", "smallest", "expected"),
    [
        (pl.Int64(), [-(2**63), None, 2**63 - 1], False, [-(2**63), None, 2**63 - 1]),
        (pl.Int64(), [-(2**63), None, 2**63 - 1], True, [-(2**63), None, 2**63 - 1]),
        (pl.Float64(), [float("nan"), None, float("-inf")], False, ["nan", None, float("-inf")]),
        (pl.Float64(), [float("inf"), None, 0.5], True, [float("inf"), None, 0.5]),
    ],
)
def test_ends_at_the_limits(dtype: Any, values: list[Any], smallest: bool, expected: list[Any]) -> None:
    records = records_of(values, dtype)
    each = PointStates(np.arange(3), 4, records, np.arange(3)).ends("v", smallest=smallest)
    assert list(map(str, each)) == list(map(str, [*expected, None]))
    for row, value in enumerate(expected):
        alone = PointStates(np.zeros(1, np.int64), 1, records, np.array([row])).ends("v", smallest=smallest)
        assert str(alone[0]) == str(value)


def test_counts_of_equal_rows_are_summed() -> None:
    owners, codes, counts = np.array([1, 0, 1, 1, 0]), np.array([2, 7, 2, 1, 7]), np.array([3, 1, -3, 1, 4])
    firsts, sums = counted((owners, codes), counts)
    assert (owners[firsts].tolist(), codes[firsts].tolist(), sums.tolist()) == ([0, 1, 1], [7, 1, 2], [5, 1, 0])
    nothing, none = counted((owners[:0],), counts[:0])
    assert not len(nothing)
    assert not len(none)
