"""Files of one folder whose columns differ: more, fewer, in another order, of other types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tests.unit.connectors.reading import read
from tests.unit.connectors.test_files import source
from umbel.connectors.known_files import FILE_SHIFT
from umbel.types.dtypes import Int, Optional, Str

FILES: list[tuple[dict[str, Any], list[tuple[int, str | None] | None]]] = [
    ({"user": pl.Series([1, 2]), "note": ["a", "b"]}, [(1, "a"), (2, "b")]),
    ({"note": ["reordered"], "user": pl.Series([3], dtype=pl.Int32)}, [(3, "reordered")]),
    ({"note": ["added"], "extra": [1.5], "user": [4]}, [(4, "added")]),
    ({"user": [5]}, [(5, None)]),
    ({"note": ["no key"]}, [None]),
    ({"user": ["x", "7"], "note": ["text", "text"]}, [None, (7, "text")]),
    ({"user": [8.0, 8.5], "note": ["whole", "not"]}, [(8, "whole"), None]),
    ({"user": pl.Series([9, 1 << 63], dtype=pl.UInt64), "note": ["fits", "not"]}, [(9, "fits"), None]),
    ({"User": [11], "note": ["another name"]}, [None]),
    ({"user": [[12]], "note": ["nested"]}, [None]),
]
"""Columns of a file, and its rows; None for one that is a dead letter."""


def test_each_file_is_read_by_its_own_columns(tmp_path: Path) -> None:
    for number, (columns, _) in enumerate(FILES):
        pl.DataFrame(columns).write_parquet(tmp_path / f"{number:02}.parquet")
    last = pa.table({"user": pa.array([13, None], pa.int64()), "note": pa.array(["d", "e"]).dictionary_encode()})
    pq.write_table(last, tmp_path / f"{len(FILES):02}.parquet")
    found = read(source(tmp_path, "*.parquet", "parquet"), {"user": Int(), "note": Optional(Str())})
    expected, dead = dict[int, Any](), []
    for number, (_, rows) in enumerate([*FILES, ({}, [(13, "d"), None])]):
        for place, row in enumerate(rows):
            at = number << FILE_SHIFT | place
            expected |= {} if row is None else {at: row}
            dead += [at] if row is None else []
    assert {at: (row["user"], row["note"]) for at, row in found.rows.items()} == expected
    assert sorted(found.dead) == dead
