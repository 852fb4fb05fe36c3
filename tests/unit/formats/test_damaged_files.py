"""Damaged compressed files: all that stands before the damage is read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from umbel.formats.chunks import chunks, last_line
from umbel.formats.stored import LocalFile

LINES = b"".join(b'{"n":%d,"text":"%d"}\n' % (number, number * 7919 % 99_991) for number in range(50_000))
PACKED = gzip.compress(LINES)


@pytest.mark.parametrize(
    ("packed", "message", "least"),
    [
        (PACKED[:-8] + b"\0\0\0\0" + PACKED[-4:], "incorrect data check", len(LINES) - 30),
        (PACKED[:-4] + b"\0\0\0\0", "incorrect length check", len(LINES) - 30),
        (PACKED + b"no gzip", "incorrect header check", len(LINES)),
        (PACKED[:-8], "breaks off", len(LINES) - 30),
        (PACKED[: len(PACKED) // 2], "breaks off", len(LINES) // 3),
        (b"no gzip", "incorrect header check", 0),
    ],
    ids=["checksum", "length", "more behind it", "no checksum", "half of it", "no gzip"],
)
def test_what_stands_before_the_damage_is_read(tmp_path: Path, packed: bytes, message: str, least: int) -> None:
    (tmp_path / "in.json.gz").write_bytes(packed)
    *whole, last = chunks(LocalFile(tmp_path / "in.json.gz"), 0, None, last_line)
    data = b"".join(each.data for each in whole)
    assert all(each.error is None for each in whole)
    assert LINES.startswith(data)
    assert len(data) >= least
    assert message in str(last.error)
    assert LINES[len(data) :].startswith(last.data)


STEP = 100_000
FRAMES = [pa.compress(LINES[start : start + STEP], codec="zstd", asbytes=True) for start in range(0, len(LINES), STEP)]
"""Frames of one block each."""


@pytest.mark.parametrize("place", [0, 1, 3, len(FRAMES) // 2, len(FRAMES) - 1])
@pytest.mark.parametrize("harm", ["cut", "header", "block", "other"])
def test_of_zstd_the_blocks_before_the_damage_are_read(tmp_path: Path, place: int, harm: str) -> None:
    damaged = bytearray(FRAMES[place])
    if harm == "cut":
        del damaged[len(damaged) // 2 :]
    elif harm == "other":
        damaged[:] = b"no zstd at all"
    else:
        damaged[0 if harm == "header" else 9] ^= 0xFF
    rest = b"" if harm == "cut" else b"".join(FRAMES[place + 1 :])
    (tmp_path / "in.json.zst").write_bytes(b"".join(FRAMES[:place]) + damaged + rest)
    *whole, last = chunks(LocalFile(tmp_path / "in.json.zst"), 0, None, last_line)
    data = b"".join(each.data for each in whole)
    assert all(each.error is None for each in whole)
    assert (data + last.data)[: place * STEP] == LINES[: place * STEP]  # behind it these frames have no checksums
    assert "zstd data is damaged, or breaks off" in str(last.error)


def test_whole_zstd_is_read(tmp_path: Path) -> None:
    for packed in (b"".join(FRAMES), pa.compress(LINES, codec="zstd", asbytes=True)):
        (tmp_path / "in.json.zst").write_bytes(packed)
        assert b"".join(each.data for each in chunks(LocalFile(tmp_path / "in.json.zst"), 0, None, last_line)) == LINES


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_compressed_files_are_read_in_chunks_of_the_requested_size(tmp_path: Path, suffix: str) -> None:
    """Chunks of 64 KiB, as Arrow decompresses them, took three times as long to parse."""
    packed = gzip.compress(LINES) if suffix == "gz" else pa.compress(LINES, codec="zstd", asbytes=True)
    (tmp_path / f"in.json.{suffix}").write_bytes(packed)
    size = len(LINES) // 4
    found = list(chunks(LocalFile(tmp_path / f"in.json.{suffix}"), 0, None, last_line, size))
    assert b"".join(each.data for each in found) == LINES
    assert all(size <= len(each.data) <= 2 * size for each in found[:-1])
