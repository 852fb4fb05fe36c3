from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from umbel.errors import InvalidType
from umbel.state.columns import HEAP, layout_of, schema_of
from umbel.state.rows import RowCodec


@pytest.mark.parametrize(
    ("dtype", "formats"),
    [
        (pl.Int64(), [np.dtype("u8")]),
        (pl.Date(), [np.dtype("u4")]),
        (pl.Int8(), [np.dtype("u1")]),
        (pl.Datetime("us", "UTC"), [np.dtype("u8")]),
        (pl.Decimal(28, 3), [np.dtype("V16")]),
        (pl.Boolean(), [np.dtype("u1")]),
        (pl.String(), [HEAP]),
        (pl.Binary(), [HEAP]),
        (pl.List(pl.Int64()), [HEAP]),
        (pl.Array(pl.Float64(), 3), [HEAP]),
        (pl.Struct({"a": pl.Int64(), "b": pl.Struct({"c": pl.String()})}), [None, np.dtype("u8"), None, HEAP]),
    ],
    ids=str,
)
def test_leaves_of_a_type(dtype: pl.DataType, formats: list[object]) -> None:
    layout = layout_of("x", dtype, RowCodec)
    assert layout.formats() == formats
    assert len(layout.split(pl.Series("x", [None], dtype=dtype))) == len(formats)


def test_what_is_null_is_marked_and_zero() -> None:
    (leaf,) = layout_of("x", pl.Int64(), RowCodec).split(pl.Series([7, None]))
    assert leaf.nulls is not None
    assert leaf.nulls.tolist() == [False, True]
    assert leaf.numbers is not None
    assert leaf.numbers.tolist() == [7, 0]
    (full,) = layout_of("x", pl.Int64(), RowCodec).split(pl.Series([7, 8]))
    assert full.nulls is None


def test_the_fields_of_a_null_struct_are_null() -> None:
    whole, part = layout_of("x", pl.Struct({"a": pl.Int64()}), RowCodec).split(pl.Series([{"a": 1}, None]))
    assert whole.nulls is not None
    assert part.nulls is not None
    assert whole.nulls.tolist() == part.nulls.tolist() == [False, True]


def test_types_by_class_or_instance() -> None:
    assert schema_of({"a": pl.Int64, "b": pl.Decimal(28, 2)}) == {"a": pl.Int64(), "b": pl.Decimal(28, 2)}


@pytest.mark.parametrize("dtype", [pl.Object(), pl.Enum(["a"]), pl.Struct({"deep": pl.List(pl.Object())})])
def test_types_that_cannot_be_kept(dtype: pl.DataType) -> None:
    with pytest.raises(InvalidType, match="cannot be kept in state"):
        layout_of("x", dtype, RowCodec)
