"""Damaged gzip: all that stands before the damage is read."""

from __future__ import annotations

import gzip
from pathlib import Path

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
