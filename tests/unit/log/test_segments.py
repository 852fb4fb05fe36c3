"""Segments: their first bytes, which say their number and the rows before them, their records, and limits of names."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from umbel.errors import InvalidValue
from umbel.log.ingest import MAX_ROWS, IngestLog
from umbel.log.records import Entry, pack
from umbel.log.segments import PREAMBLE_BYTES, Segment, directory_of, parse_preamble, preamble, segments_in


def test_a_preamble_says_how_many_rows_are_before_its_segment() -> None:
    data = preamble(3, 7)
    assert len(data) == PREAMBLE_BYTES
    assert parse_preamble(data, 3) == 7
    assert parse_preamble(data, 4) is None  # a file under the name of another one
    assert parse_preamble(data[:-1], 3) is None
    body = b"umbelgol" + data[8:-4]
    assert parse_preamble(body + struct.pack("<I", zlib.crc32(body)), 3) is None


@pytest.mark.parametrize("is_readable", [True, False])
def test_the_first_row_is_that_of_the_preamble_else_of_the_first_record(tmp_path: Path, is_readable: bool) -> None:
    segment = Segment(tmp_path, 2)
    start = preamble(2, 7) if is_readable else b"\0" * PREAMBLE_BYTES
    segment.path.write_bytes(start)
    assert (segment.preamble_row(), segment.first_row()) == ((7, 7) if is_readable else (None, None))
    segment.path.write_bytes(start + pack(Entry(b"[1]", 1, 0), 9))
    assert (segment.preamble_row(), segment.first_row()) == ((7, 7) if is_readable else (None, 9))


def test_copies_beside_a_segment_are_none(tmp_path: Path) -> None:
    path = Segment(tmp_path, 2).path
    for each in (path, path.with_name("x.seg"), path.with_name(f"{path.stem} (1).seg")):
        each.write_bytes(preamble(2, 7))
    assert segments_in(tmp_path) == [Segment(tmp_path, 2)]


def test_heads_are_found_behind_a_damaged_one(tmp_path: Path) -> None:
    segment = Segment(tmp_path, 1)
    parts = [preamble(1, 0), *(pack(Entry(b"[%d]" % number, 1, 0), number) for number in range(3))]
    end = sum(map(len, parts))
    segment.path.write_bytes(b"".join(parts))
    assert [(each.row, each.end) for each in segment.heads(PREAMBLE_BYTES, end)] == [(0, 67), (1, 102), (2, 137)]
    for damaged in (parts[2][:8] + b"\3" + parts[2][9:], b"\0" * len(parts[2])):
        segment.path.write_bytes(b"".join((*parts[:2], damaged, parts[3])))
        assert [(each.row, each.end) for each in segment.heads(PREAMBLE_BYTES, end)] == [(0, 67), (2, 137)]
    assert [each.row for each in segment.heads(PREAMBLE_BYTES, end - 1)] == [0]


def test_names_and_numbers_of_rows_are_taken_up_to_their_limits(tmp_path: Path) -> None:
    assert directory_of(tmp_path, "x" * 200, "e").parent.name == "x" * 200
    with pytest.raises(InvalidValue, match="webhook"):
        directory_of(tmp_path, "x" * 201, "e")
    log = IngestLog(tmp_path, "w", "e")
    assert log.append_blocking(b"[]", MAX_ROWS).rows == MAX_ROWS
    with pytest.raises(InvalidValue, match="rows"):
        log.append_blocking(b"[]", MAX_ROWS + 1)
    log.close()
