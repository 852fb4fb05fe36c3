"""The columns of an input, which are looked for in the head of its first file."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from umbel.connectors.buckets import FolderBucket
from umbel.errors import InvalidValue
from umbel.formats.declarations import CSV
from umbel.offline import inputs
from umbel.offline.inputs import InputColumns, check_columns
from umbel.types.dtypes import Datetime, Int

REQUESTED = InputColumns({"at": Datetime(), "n": Int()}, {"n": "n"})
WIDE = ",".join(f"c{number:05}" for number in range(1000))


@pytest.fixture(autouse=True)
def short_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "HEAD_BYTES", 100)
    monkeypatch.setattr(inputs, "LONGEST_HEAD", 20_000)


def check(folder: Path, name: str, content: str, form: str | CSV) -> None:
    (folder / "data").mkdir()
    (folder / "data" / name).write_text(content)
    bucket = FolderBucket(folder, "data", "bucket 'data'")
    check_columns(bucket, form, tuple(bucket.listed("")), REQUESTED, folder)


@pytest.mark.parametrize(
    ("name", "content", "form"),
    [
        ("a.csv", f"n,at,{WIDE}\n1,2026-03-01T00:00:00Z{',' * 1000}\n", CSV()),
        ("a.csv", "\n" * 5000 + "n,at\n1,2026-03-01T00:00:00Z\n", CSV()),
        ("a.csv", f"n,at,{WIDE * 5}\n", CSV()),
        ("a.json", "\n" * 5000 + '{"n": 1, "at": 0}\n', "json"),
        ("a.json", "\n" * 50_000 + '{"n": 1, "at": 0}\n', "json"),
    ],
)
def test_a_file_with_a_long_header_is_not_empty(tmp_path: Path, name: str, content: str, form: str | CSV) -> None:
    check(tmp_path, name, content, form)


def test_columns_behind_a_long_header_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="misses timestamp column 'at'"):
        check(tmp_path, "a.csv", f"n,{WIDE}\n1{',' * 1000}\n", CSV())


@pytest.mark.parametrize(
    ("name", "content", "form"), [("a.csv", f"n,at,{WIDE}\n", CSV()), ("a.json", "\n" * 5000, "json")]
)
def test_a_file_without_rows_is_empty(tmp_path: Path, name: str, content: str, form: str | CSV) -> None:
    with pytest.raises(InvalidValue, match="the input is empty"):
        check(tmp_path, name, content, form)


def test_a_damaged_footer_is_no_trouble_of_the_storage(tmp_path: Path) -> None:
    """The client was to try again, and to see whether the storage can be reached; so it was for an encrypted file."""
    pl.DataFrame({"at": [0], "n": [1]}).write_parquet(tmp_path / "good.parquet")
    content = (tmp_path / "good.parquet").read_bytes()
    footer = int.from_bytes(content[-8:-4], "little")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.parquet").write_bytes(content[: -8 - footer] + b"\xff" * footer + content[-8:])
    bucket = FolderBucket(tmp_path, "data", "bucket 'data'")
    with pytest.raises(InvalidValue, match=r"'a.parquet' is not a readable Parquet file(?s:.*)damaged, encrypted"):
        check_columns(bucket, "parquet", tuple(bucket.listed("")), REQUESTED, tmp_path)
