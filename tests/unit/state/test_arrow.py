from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from umbel.state.arrow import (
    binary_array,
    binary_of,
    binary_parts,
    fixed_binary,
    join_rows,
    nulls_of,
    numbers_of,
    stored_of,
    to_series,
)


@pytest.mark.parametrize(
    "column", [pl.Series(["a", None, "", "longer than twelve"]), pl.Series([b"\x00", None, b"", b"x"])]
)
def test_text_as_bytes_null_as_none(column: pl.Series) -> None:
    expected = [value.encode() if isinstance(value, str) else value or b"" for value in column.fill_null(column[2])]
    array = binary_array(column)
    assert array.type == pa.large_binary()
    assert array.to_pylist() == expected
    for start, length in ((1, 2), (4, 0), (0, 0), (3, 1)):
        piece = binary_array(column.slice(start, length))
        assert piece.to_pylist() == expected[start : start + length]
        offsets, data = binary_parts(piece)
        assert [bytes(data[low:high]) for low, high in itertools.pairwise(offsets)] == piece.to_pylist()


def test_bytes_between_offsets() -> None:
    data = np.frombuffer(b"abcdef", np.uint8)
    assert binary_of(np.array([1, 3, 3, 6]), data).to_pylist() == [b"bc", b"", b"def"]
    assert fixed_binary(data.reshape(2, 3)).to_pylist() == [b"abc", b"def"]
    assert fixed_binary(np.empty((2, 0), np.uint8)).to_pylist() == [b"", b""]


def test_rows_are_joined_side_by_side() -> None:
    one, other = pa.array([b"a", b""], pa.large_binary()), pa.array([b"b", b"c"], pa.large_binary())
    assert join_rows([one]) is one
    assert join_rows([one, other, one]).to_pylist() == [b"aba", b"c"]


def test_numbers_of_pieces() -> None:
    column = pl.Series([1, None, 3, 4])
    assert numbers_of(column[1:3]).tolist() == [0, 3]
    assert stored_of(column[2:], np.dtype("i8")).tolist() == [3, 4]
    assert stored_of(column[:0], np.dtype("i8")).tolist() == []
    assert nulls_of(column[2:]) is None
    found = nulls_of(column[:2])
    assert found is not None
    assert found.tolist() == [False, True]


def test_a_series_has_its_name() -> None:
    assert to_series(pa.array([1]), "x").name == "x"
