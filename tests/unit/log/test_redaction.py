"""Redaction of ingest logs: rows go, and no position or number changes."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from umbel.log import redaction
from umbel.log.ingest import IngestLog
from umbel.log.reading import IngestReader
from umbel.log.records import LogRecord
from umbel.log.redaction import finish_redaction, redact, without_erased
from umbel.log.segments import segments_in
from umbel.state.failpoints import armed

PAYLOADS = [
    b'[{"k":"a"},{"k":"ab"}]',
    ' [ {"k": "ä", "n": {"deep": [1, "]"]}} , {"k": "日本", "v": "a"} ]\n'.encode(),
    b'[{"k":"x\\"},{"},7,null,"a"]',
    b"[]",
    b'[{"k": "broken"',
    b'[{"k":"last"}]',
]
ROWS = [2, 2, 4, 0, 1, 1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = IngestLog(tmp_path, "web", "a", segment_bytes=150)
    for number, (payload, rows) in enumerate(zip(PAYLOADS, ROWS, strict=True)):
        log.append_blocking(payload, rows, batch_id=f"id-{number}")
    log.close()
    return log.directory


def records(folder: Path) -> list[LogRecord]:
    reader = IngestReader(folder.parents[2], folder.parent.name, folder.name)
    ranges, _ = reader.plan(reader.start())
    return [record for part in ranges for record in reader.open(part)]


def rows(folder: Path) -> dict[int, object]:
    """Return the rows that can be read, by their numbers."""
    found: dict[int, object] = {}
    for record in records(folder):
        for piece in without_erased(record) if record.entry.is_redacted else [record]:
            try:
                values = orjson.loads(piece.entry.payload)
            except orjson.JSONDecodeError:
                values = [piece.entry.payload]
            assert len(values) == piece.entry.rows
            found |= {piece.row + number: value for number, value in enumerate(values)}
    return found


@pytest.mark.parametrize("number", range(10))
def test_one_row_goes_and_nothing_moves(folder: Path, number: int) -> None:
    before, places = rows(folder), [(each.offset, each.size, each.row, each.entry.digest) for each in records(folder)]
    assert redact(folder, {number}) == 1
    expected = {row: value for row, value in before.items() if row != number}
    if before[number] in (7, "a"):  # too short for a null, and no object: it was rejected, and is
        expected[number] = 0
    assert rows(folder) == {
        row: value for row, value in expected.items() if value is not None or number not in (4, 5, 6, 7)
    }
    assert [(each.offset, each.size, each.row, each.entry.digest) for each in records(folder)] == places


def test_text_that_goes_is_in_no_file(folder: Path) -> None:
    redact(folder, {2, 3, 8})
    data = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
    assert not any(text in data for text in ("ä".encode(), "日本".encode(), b"broken", b"deep"))
    assert b'"ab"' in data


def test_a_redaction_can_be_repeated(folder: Path) -> None:
    redact(folder, {0, 9})
    before = rows(folder)
    redact(folder, {0, 9})
    assert rows(folder) == before
    assert sorted(before) == [1, 2, 3, 4, 5, 6, 7, 8]


class Crash(BaseException):
    pass


def crash() -> None:
    raise Crash


@pytest.mark.parametrize(("point", "turn"), [("redaction noted", 1), ("overwritten", 1), ("overwritten", 2)])
def test_an_interrupted_redaction_is_finished(folder: Path, point: str, turn: int) -> None:
    expected = {row: value for row, value in rows(folder).items() if row not in (0, 3)}
    with armed(point, turn, crash), pytest.raises(Crash):
        redact(folder, {0, 3})
    finish_redaction(folder)
    redact(folder, {0, 3})
    assert rows(folder) == expected
    assert not list(folder.glob("*.redaction"))


def test_a_torn_overwriting_is_finished(folder: Path) -> None:
    with armed("overwritten", 1, crash), pytest.raises(Crash):
        redact(folder, {0})
    segment = segments_in(folder)[0].path
    data = bytearray(segment.read_bytes())
    data[70:80] = b"?" * 10  # the machine stopped in the middle of it
    segment.write_bytes(data)
    finish_redaction(folder)
    assert sorted(rows(folder)) == list(range(1, 10))


def test_a_note_that_was_cut_does_nothing(folder: Path) -> None:
    before = rows(folder)
    redaction._note(segments_in(folder)[0], [(32, b"nonsense")])
    note = next(folder.glob("*.redaction"))
    note.write_bytes(note.read_bytes()[:-1])
    finish_redaction(folder)
    assert rows(folder) == before


def test_retention_goes_by_the_time_of_the_events(folder: Path) -> None:
    segment = segments_in(folder)[0].path
    os.utime(segment, ns=(10**18, 10**18))
    redact(folder, {0})
    assert segment.stat().st_mtime_ns == 10**18 + 1000  # and a backup sees that it has changed


def test_servers_append_meanwhile(folder: Path) -> None:
    log = IngestLog(folder.parents[2], "web", "a", segment_bytes=1 << 20)
    log.append_blocking(b'[{"k":"before"}]', 1)
    redact(folder, {9})
    log.append_blocking(b'[{"k":"after"}]', 1)
    log.close()
    assert {row: value for row, value in rows(folder).items() if row >= 9} == {10: {"k": "before"}, 11: {"k": "after"}}
