"""List columns of runs and blocks, read at some rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from umbel.state.runs.addresses import hash_keys
from umbel.state.runs.block import Block
from umbel.state.runs.points import PointRecords, RowSlice
from umbel.state.runs.run import RunFile, pack_run

KINDS = {
    "texts": pl.List(pl.String),
    "bytes": pl.List(pl.Binary),
    "ints": pl.List(pl.Int64),
    "flags": pl.List(pl.Boolean),
}
LISTS: list[dict[str, Any]] = [
    {"texts": ["é", None], "bytes": [b"\0", b""], "ints": [1, None, 3], "flags": [True, None]},
    {"texts": None, "bytes": None, "ints": None, "flags": None},
    {"texts": [], "bytes": [None], "ints": [], "flags": [False]},
    {"texts": ["z" * 70, ""], "bytes": [b"y" * 70], "ints": [-(2**63)], "flags": []},
]


def frame(shift: int) -> pl.DataFrame:
    rows = pl.DataFrame([LISTS[(number + shift) % len(LISTS)] for number in range(8)], schema=KINDS)
    keys = pl.Series("_key", [b"k"] * 8, dtype=pl.Binary)
    return rows.with_columns(keys, pl.lit(value=False).alias("_removed"), pl.Series("_hash", hash_keys(keys)))


def run_of(rows: pl.DataFrame) -> RunFile:
    return RunFile(pa.py_buffer(pack_run(rows, "o/t", [])), "a.run")


@pytest.mark.parametrize("name", KINDS)
def test_lists_of_several_sources_come_in_the_order_of_the_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks, run = [frame(shift) for shift in range(3)], frame(3)
    sources = [Block(each.slice(0)) for each in blocks]
    sources[1] = Block(pl.concat([blocks[1].head(3), blocks[1]], rechunk=False).slice(3))
    slices = [
        RowSlice(sources[0], 2, 5),
        RowSlice(run_of(run), 1, 8),
        RowSlice(sources[1], 0, 8),
        RowSlice(sources[0], 0, 2),
    ]
    stored = pl.concat([blocks[0][2:5], run[1:8], blocks[1], blocks[0][:2]])[name].to_list()
    rows = np.array([19, 0, 7, 7, 12, 1, 4, 2, 18, 9])
    monkeypatch.delattr(pl.Series, "gather")  # a Polars expression for each column of each source
    values, lengths = PointRecords([slices], KINDS).lists(name, rows)
    expected = [stored[row] or [] for row in rows.tolist()]
    assert lengths.tolist() == [len(each) for each in expected]
    different, codes = values.ranked()
    assert len(set(different)) == len(different)
    assert [different[code] for code in codes] == [value for each in expected for value in each]


@pytest.mark.parametrize("name", KINDS)
def test_no_rows_have_no_elements(name: str) -> None:
    nothing = np.zeros(0, np.int64)
    for groups in (
        [],
        [[RowSlice(Block(frame(0)), 0, 8)]],
        [[RowSlice(Block(frame(0)), 0, 8), RowSlice(run_of(frame(1)), 0, 8)]],
    ):
        values, lengths = PointRecords(groups, KINDS).lists(name, nothing)
        assert not len(lengths)
        assert values.ranked()[0] == [None]
