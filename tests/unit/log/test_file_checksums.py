"""Checksums of a change log's files: in their names, in a record beside them, or none for files of umbel 0.1."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from umbel.log import file_checksums
from umbel.log.file_checksums import SUMS, FileSums, sum_of


def put(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return name


def test_a_file_is_checked_by_its_name(tmp_path: Path) -> None:
    name = put(tmp_path, f"part-{zlib.crc32(b'rows'):08x}.parquet", b"rows")
    assert FileSums(tmp_path).error(name) is None
    put(tmp_path, name, b"other rows")
    assert FileSums(tmp_path).error(name) == f"{name} is not as it was written"
    (tmp_path / name).unlink()
    assert FileSums(tmp_path).error(name) == f"{name} is missing"


def test_a_file_is_checked_by_the_record_of_compaction(tmp_path: Path) -> None:
    named = put(tmp_path, f"part-{zlib.crc32(b'rows'):08x}.parquet", b"rows")
    merged, old = put(tmp_path, "merged.parquet", b"merged"), put(tmp_path, "old.parquet", b"old")
    FileSums(tmp_path).note([named, merged])
    assert FileSums(tmp_path).noted == {merged: f"{zlib.crc32(b'merged'):08x}"}
    assert [FileSums(tmp_path).error(each) for each in (named, merged, old)] == [None] * 3
    put(tmp_path, merged, b"merged and changed")
    assert FileSums(tmp_path).error(merged) == f"{merged} is not as it was written"
    FileSums(tmp_path).note(
        [merged, old]
    )  # what was noted of a file stays, so that damage is not taken for its content
    assert FileSums(tmp_path).error(merged) == f"{merged} is not as it was written"
    FileSums(tmp_path).note([old])
    assert FileSums(tmp_path).noted == {old: f"{zlib.crc32(b'old'):08x}"}


def test_a_record_that_cannot_be_read_is_damage_of_the_files_it_is_for(tmp_path: Path) -> None:
    named = put(tmp_path, f"part-{zlib.crc32(b'rows'):08x}.parquet", b"rows")
    merged = put(tmp_path, "merged.parquet", b"merged")
    put(tmp_path, SUMS, b"{")
    assert FileSums(tmp_path).error(named) is None
    assert FileSums(tmp_path).error(merged) == f"{SUMS} cannot be read"


def test_a_file_is_read_again_when_it_has_changed_and_not_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / put(tmp_path, "a", b"a" * (2 << 20))
    first = sum_of(path)
    assert first == f"{zlib.crc32(path.read_bytes()):08x}"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: pytest.fail("read again"))
        assert sum_of(path) == first
    before = path.stat()
    path.write_bytes(b"b" * (2 << 20))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert sum_of(path) == f"{zlib.crc32(path.read_bytes()):08x}" != first
    monkeypatch.setattr(file_checksums, "MOST_SEEN", 3)
    for number in range(9):
        sum_of(tmp_path / put(tmp_path, f"{number}", b"x"))
        assert len(file_checksums._SEEN) <= 3
