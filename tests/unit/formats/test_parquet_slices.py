"""Slices of Parquet files: bounded, also inside of row groups; each is read with its own rows alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from umbel.connectors.bucket_files import BucketFile
from umbel.connectors.buckets import FolderBucket, Stored
from umbel.errors import InvalidValue, Transient
from umbel.formats.parquet import ParquetFormat
from umbel.formats.pieces import FilePart
from umbel.types.dtypes import Int

COLUMNS = {"Set.number": Int(), "at": Int()}


@pytest.fixture
def file(tmp_path: Path) -> BucketFile:
    rows = pl.DataFrame({"unread": ["x" * 50] * 1000, "at": range(1000), "Set.number": range(1000, 2000)})
    return written(tmp_path, rows, 300)


def written(folder: Path, rows: pl.DataFrame, group: int) -> BucketFile:
    (folder / "data").mkdir(exist_ok=True)
    rows.write_parquet(folder / "data" / "a.parquet", row_group_size=group, compression="uncompressed")
    size = (folder / "data" / "a.parquet").stat().st_size
    return BucketFile(FolderBucket(folder, "data", "a folder"), Stored("a.parquet", size))


@pytest.mark.parametrize(("rows", "size"), [(1, 1 << 20), (7, 1 << 20), (299, 1 << 20), (5000, 1 << 20), (5000, 500)])
def test_slices_have_all_rows_once(file: BucketFile, rows: int, size: int) -> None:
    slices = list(ParquetFormat().slices(file, COLUMNS, rows, size))
    cuts = [(each.begin, each.end) for each in slices]
    assert [begin for begin, _ in cuts] == [0, *(end for _, end in cuts[:-1])]
    assert cuts[-1][1] == 1000
    assert all(end - begin <= rows for begin, end in cuts if end is not None)
    assert size == 1 << 20 or len(slices) > 20  # the column that is not read does not count, the others do
    found = list[int]()
    for begin, end in cuts:
        for read in ParquetFormat().read(FilePart(file, "a", begin, end), COLUMNS, exact=True):
            assert read.where(0) == f"a: row {begin}"
            found += read.raw.frame["Set.number"].to_list()
    assert found == list(range(1000, 2000))


@pytest.mark.parametrize("streamed", [None, 0])
def test_one_slice_over_several_row_groups(
    file: BucketFile, monkeypatch: pytest.MonkeyPatch, streamed: int | None
) -> None:
    if streamed is not None:
        monkeypatch.setattr("umbel.formats.parquet.STREAMED_BYTES", streamed)
    reads = ParquetFormat().read(FilePart(file, "a", 250, 950), COLUMNS, exact=True)
    assert [number for read in reads for number in read.raw.frame["at"]] == list(range(250, 950))


def test_files_that_change_or_cannot_be_read(file: BucketFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with file.open() as opened:
        monkeypatch.setattr("umbel.connectors.bucket_files._Ranges.readinto", lambda *_: away())
        with pytest.raises(Transient, match="away"):
            opened.read()
    with pytest.raises(Transient, match="away"):  # and is no damage of the content
        list(ParquetFormat().read(FilePart(file, "a", 0, None), COLUMNS, exact=True))
    with pytest.raises(Transient, match="away"):
        list(ParquetFormat().slices(file, COLUMNS, 10, 1000))
    (tmp_path / "data" / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidValue, match="was changed meanwhile"):
        file.open()


def away() -> int:
    raise Transient("the storage is away")
