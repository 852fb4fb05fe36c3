"""Input files that are replaced or removed while a query runs."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from umbel.connectors.buckets import FolderBucket
from umbel.errors import InvalidValue
from umbel.formats.declarations import CSV
from umbel.offline import inputs
from umbel.offline.inputs import FileInput, InputColumns
from umbel.types.dtypes import Datetime, Int

REQUESTED = InputColumns({"at": Datetime(), "n": Int()}, {"n": "n"})
AT = "2026-03-01T00:00:00Z"


def put(folder: Path, digit: int, form: str, seconds: int) -> None:
    """Write a file whose size does not depend on its rows."""
    path = folder / "data" / f"a.{form}"
    path.parent.mkdir(exist_ok=True)
    frame = pl.DataFrame({"n": [digit] * 50, "at": [AT] * 50})
    if form == "csv":
        frame.write_csv(path)
    elif form == "json":
        frame.write_ndjson(path)
    else:
        frame.write_parquet(path, compression="uncompressed")
    os.utime(path, (seconds, seconds))


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_file_of_the_same_size_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(inputs, "BATCH_ROWS", 1)
    bucket = FolderBucket(tmp_path, "data", "bucket 'data'")

    def listed() -> FileInput:
        return FileInput(bucket, CSV() if form == "csv" else form, tuple(bucket.listed("")), REQUESTED)

    put(tmp_path, 1, form, 1000)
    size, before = (tmp_path / "data" / f"a.{form}").stat().st_size, listed()
    (part,) = before.parts()
    reading = before.batches(part)
    assert set(next(reading).frame["n"]) == {1}
    put(tmp_path, 2, form, 2000)
    assert (tmp_path / "data" / f"a.{form}").stat().st_size == size
    for rows in (reading, before.batches(part)):  # of the part that is being read, and of one that is read later
        with pytest.raises(
            InvalidValue, match=r"was changed meanwhile: it was written at 1970-01-01T00:16:40.*00:33:20"
        ):
            list(rows)
    assert {n for batch in listed().batches(part) for n in batch.frame["n"]} == {2}


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
@pytest.mark.parametrize(("is_folder", "words"), [(False, "it was removed"), (True, "had .* bytes, and has 0")])
def test_a_file_that_is_gone(tmp_path: Path, form: str, is_folder: bool, words: str) -> None:
    bucket = FolderBucket(tmp_path, "data", "bucket 'data'")
    put(tmp_path, 1, form, 1000)
    before = FileInput(bucket, CSV() if form == "csv" else form, tuple(bucket.listed("")), REQUESTED)
    (part,) = before.parts()
    path = tmp_path / "data" / f"a.{form}"
    path.unlink()
    if is_folder:
        path.mkdir()
    with pytest.raises(InvalidValue, match=rf"^input file 'a.{form}' was changed meanwhile: .*{words}"):
        list(before.batches(part))
