"""Pieces of Parquet files: each row is in one of them, whatever their sizes are from plan to plan."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel.formats import parquet
from umbel.formats.parquet import ParquetFormat
from umbel.formats.pieces import FilePart
from umbel.formats.stored import LocalFile
from umbel.types.dtypes import Int


def planned(groups: list[tuple[int, int]], begin: int, size: int) -> list[tuple[int, int, int]]:
    return list(parquet._merged(parquet._divided(groups, begin, size), size))


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5000)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(1, 4000), st.integers(1, 4)), min_size=1, max_size=5),
)
def test_each_row_is_in_one_piece_whatever_the_sizes_are(groups, plans):
    """A plan may read less than the one before, where sources share it or rows make many."""
    last, reached, number, rows = sum(rows for rows, _ in groups), 0, 0, list[int]()
    while reached < last:
        size, taken = plans[number % len(plans)]
        for start, end, weight in planned(groups, reached, size)[:taken]:
            assert start == reached < end
            assert weight > 0
            rows += range(start, end)
            reached = end
        number += 1
    assert rows == list(range(last))


@given(st.integers(1, 1000), st.integers(1, 100_000), st.integers(1, 5000))
def test_a_large_row_group_is_divided(rows, weight, size):
    pieces = planned([(rows, weight)], 0, size)
    assert all(part <= parquet.DIVIDED * size or end == start + 1 for start, end, part in pieces)
    assert len(pieces) == 1 or weight > parquet.DIVIDED * size


@pytest.mark.parametrize("group", [100, 1000, 7000])
def test_a_file_is_read_once_in_plans_of_different_sizes(tmp_path: Path, group: int) -> None:
    path, count = tmp_path / "a.parquet", 7000
    rows = pl.DataFrame({"number": range(count), "text": [f"{number:0300d}" for number in range(count)]})
    rows.write_parquet(path, row_group_size=group, compression="uncompressed", use_pyarrow=True)
    assert path.stat().st_size > parquet.WHOLE_BYTES
    file, found, begin, plan = LocalFile(path), list[int](), 0, 0
    while begin < count:
        piece = next(ParquetFormat().pieces(file, begin, (40_000, 300_000, 5_000)[plan % 3]))
        assert piece.weight <= 2 * 300_000
        for read in ParquetFormat().read(FilePart(file, "a", piece.begin, piece.end), {"number": Int()}, exact=True):
            found += read.raw.frame["number"].to_list()
        assert piece.is_last == (piece.end == count)
        begin, plan = piece.end or count, plan + 1
    assert found == list(range(count))
