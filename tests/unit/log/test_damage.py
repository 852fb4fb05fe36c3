"""A damaged ingest log: what is whole is read, what is not is reported with its place, and nothing else is taken for it."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from umbel.errors import Damaged
from umbel.log.appender import Appender
from umbel.log.ingest import IngestLog
from umbel.log.reading import Damage, IngestReader
from umbel.log.records import HEADER_BYTES, Entry, pack
from umbel.log.segments import PREAMBLE_BYTES, LogPosition, Segment, directory_of, segments_in


def written(root: Path, count: int, segment_bytes: int = 1 << 20) -> IngestReader:
    """Return the reader of a log of so many records, two rows each."""
    log = IngestLog(root, "w", "e", segment_bytes=segment_bytes)
    for number in range(count):
        log.append_blocking(b'[{"n":%d},{}]' % number, 2, batch_id=f"{number}" if number % 3 == 0 else None)
    log.close()
    return IngestReader(root, "w", "e")


def payload(number: int) -> bytes:
    return b'[{"n":%d},{}]' % number


def everything(reader: IngestReader, start: LogPosition | None = None) -> tuple[list[bytes], list[Damage]]:
    """Return the payloads and the damage that a reader finds."""
    damage = list[Damage]()
    ranges, _ = reader.plan(start or reader.start())
    return [each.entry.payload for part in ranges for each in reader.open(part, damage.append)], damage


def restarted(root: Path) -> IngestReader:
    """Return a reader after the machine was started again: nothing but the records says where the log ends."""
    (directory_of(root, "w", "e") / "lock").unlink()
    Appender(directory_of(root, "w", "e")).append([Entry(b"[9]", 1, 0)])
    return IngestReader(root, "w", "e")


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("size", [0, 10, PREAMBLE_BYTES, PREAMBLE_BYTES + 5])
def test_rows_of_a_segment_that_is_cut_to_nothing_are_reported(tmp_path: Path, size: int, is_read: bool) -> None:
    reader = written(tmp_path, 4)
    start = reader.advance(reader.start(), rows=2) if is_read else reader.start()
    os.truncate(Segment(reader.directory, 1).path, size)
    Appender(reader.directory).append([Entry(b"[9]", 1, 0)])
    found, damage = everything(reader, start)
    assert found == [b"[9]"]
    assert [(each.row, each.rows, each.is_missing or each.size) for each in damage] in (
        [(start.row, 8 - start.row, True)],
        [(start.row, 8 - start.row, 5)],  # a torn record
    )


@given(st.integers(0, 10_000), st.integers(1, 255), st.booleans())
@examples(60)
def test_a_changed_byte_loses_one_record_at_most(
    tmp_path_factory: pytest.TempPathFactory, place: int, change: int, again: bool
) -> None:
    root = tmp_path_factory.mktemp("log")
    reader = written(root, 8)
    path = Segment(reader.directory, 1).path
    data = bytearray(path.read_bytes())
    place %= len(data)
    hit = sum(record.offset <= place for part in reader.plan(reader.start())[0] for record in reader.open(part)) - 1
    data[place] ^= change
    path.write_bytes(data)
    whole = [payload(number) for number in range(8) if number != hit]
    if again:
        found, damage = everything(restarted(root))
        assert found == [*whole, b"[9]"]
    else:
        found, damage = everything(IngestReader(root, "w", "e"))
        assert found == whole
    if hit >= 0:
        (only,) = damage
        assert only.offset <= place < only.offset + only.size
        assert only.path == path
        assert only.row == 2 * hit
        assert only.rows >= 2
        assert hit == 7 or only.rows == 2
    else:
        assert damage == []


def test_a_changed_length_anywhere_hides_nothing_behind_it(tmp_path: Path) -> None:
    reader = written(tmp_path, 6)
    path = Segment(reader.directory, 1).path
    whole = path.read_bytes()
    (part,), _ = reader.plan(reader.start())
    for number, record in enumerate(list(reader.open(part))):
        for length in (0, 1, 2**31, 2**32 - 1):
            at = record.offset + 4
            path.write_bytes(whole[:at] + length.to_bytes(4, "little") + whole[at + 4 :])
            found, damage = everything(restarted(tmp_path))
            assert found == [*(payload(n) for n in range(6) if n != number), b"[9]"]
            assert [each.offset for each in damage] == [record.offset]


def test_a_record_inside_a_damaged_one_is_not_taken(tmp_path: Path) -> None:
    inner = pack(Entry(b"[666]", 1, 0), 1)
    log = IngestLog(tmp_path, "w", "e")
    outer = log.append_blocking(b"xxxx" + inner + b"yy", 1)
    log.append_blocking(b"[2]", 1)
    log.close()
    path = Segment(directory_of(tmp_path, "w", "e"), 1).path
    data = bytearray(path.read_bytes())
    data[outer.offset + HEADER_BYTES] ^= 1
    path.write_bytes(data)
    found, (damage,) = everything(IngestReader(tmp_path, "w", "e"))
    assert found == [b"[2]"]
    assert (damage.offset, damage.row, damage.rows) == (outer.offset, 0, 1)


def test_records_of_the_first_version_are_found_behind_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umbel.log.records._HAS_CHECK", 0)
    monkeypatch.setattr("umbel.log.records._CHECK", 0)
    reader = written(tmp_path, 30)
    monkeypatch.undo()
    path = Segment(reader.directory, 1).path
    whole, chance = path.read_bytes(), random.Random(5)
    for _ in range(20):
        data = bytearray(whole)
        place = chance.randrange(PREAMBLE_BYTES, len(data) - 40)
        data[place] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        found, damage = everything(IngestReader(tmp_path, "w", "e"))
        assert len(found) == 29
        assert [each.rows for each in damage] == [2]
    assert len(list(Segment(reader.directory, 1).heads(PREAMBLE_BYTES, len(whole)))) >= 29


def test_a_large_hole_is_passed(tmp_path: Path) -> None:
    reader = written(tmp_path, 3)
    path = Segment(reader.directory, 1).path
    log = IngestLog(tmp_path, "w", "e")
    hole = log.append_blocking(b" " * (3 << 20), 2)
    log.append_blocking(b"[4]", 1)
    log.close()
    with path.open("r+b") as file:
        file.seek(hole.offset)
        file.write(b"\0" * (2 << 20))
    found, (damage,) = everything(restarted(tmp_path))
    assert found == [payload(0), payload(1), payload(2), b"[4]", b"[9]"]
    assert (damage.offset, damage.rows) == (hole.offset, 2)


@pytest.mark.parametrize("place", [0, 9, 17, 30])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_damaged_start_of_a_segment_loses_nothing(tmp_path: Path, number: int, place: int) -> None:
    reader = written(tmp_path, 12, segment_bytes=250)
    assert len(segments_in(reader.directory)) == 3
    path = Segment(reader.directory, number).path
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    assert everything(IngestReader(tmp_path, "w", "e")) == ([payload(n) for n in range(12)], [])
    assert everything(restarted(tmp_path)) == ([*(payload(n) for n in range(12)), b"[9]"], [])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_segment_is_reported_and_skipped(tmp_path: Path, number: int) -> None:
    reader = written(tmp_path, 12, segment_bytes=250)
    ranges, end = reader.plan(reader.start())
    lost = [(each.begin.row, each.rows) for each in ranges if each.begin.segment == number]
    Segment(reader.directory, number).path.unlink()
    reader = IngestReader(tmp_path, "w", "e")
    found, (damage,) = everything(reader)
    assert [(damage.row, damage.rows)] == lost
    assert damage.is_missing
    assert f"{number:020d}.seg is missing" in str(damage)
    assert found == [payload(n) for n in range(12) if not damage.row <= 2 * n < damage.row + damage.rows]
    log = IngestLog(tmp_path, "w", "e")
    log.append_blocking(b"[9]", 1)
    log.close()
    assert everything(IngestReader(tmp_path, "w", "e"), end) == ([b"[9]"], [])  # positions still mean what they meant


def test_a_segment_that_was_cut_is_reported_and_read_positions_stay(tmp_path: Path) -> None:
    reader = written(tmp_path, 6)
    path = Segment(reader.directory, 1).path
    _, middle = reader.plan(reader.start(), rows=10)
    path.write_bytes(path.read_bytes()[: PREAMBLE_BYTES + 120])
    log = IngestLog(tmp_path, "w", "e")
    receipt = log.append_blocking(b"[9]", 1)
    log.close()
    assert (receipt.segment, receipt.row) == (2, 12)
    found, damage = everything(IngestReader(tmp_path, "w", "e"))
    assert found == [payload(0), payload(1), b"[9]"]
    assert [(each.row, each.rows) for each in damage] == [(4, 8)]
    found, damage = everything(IngestReader(tmp_path, "w", "e"), middle)
    assert found == [b"[9]"]
    assert sum(each.rows for each in damage) <= 2


def test_a_whole_last_record_that_is_damaged_is_no_torn_write(tmp_path: Path) -> None:
    reader = written(tmp_path, 3)
    path = Segment(reader.directory, 1).path
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    found, damage = everything(restarted(tmp_path))
    assert found == [payload(0), payload(1), b"[9]"]
    assert [(each.row, each.rows) for each in damage] == [(4, 2)]
    assert path.read_bytes()[: len(content)] == content


def test_a_range_is_there_to_its_last_byte_or_not_at_all(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, "w", "e")
    log.append_blocking(b"[1]", 1)
    log.close()
    reader = IngestReader(tmp_path, "w", "e")
    (part,), _ = reader.plan(reader.start())
    assert reader.has(part)
    path = Segment(reader.directory, 1).path
    os.truncate(path, part.end.offset - 1)
    assert not reader.has(part)
    path.unlink()
    assert not reader.has(part)


def test_a_log_starts_at_its_oldest_record_whatever_its_note_says(tmp_path: Path) -> None:
    reader = written(tmp_path, 12, segment_bytes=150)
    reader.expire(10**18, reader.plan(reader.start(), rows=12)[1])
    oldest, left = reader.start(), [payload(number) for number in range(12)]
    first = segments_in(reader.directory)[0]
    assert (oldest.segment, oldest.offset) == (first.number, PREAMBLE_BYTES)
    assert oldest.row == first.first_row() != 0
    assert everything(reader, oldest) == (left[oldest.row // 2 :], [])
    for content in (b"", b"00000000 {}", None):
        note = reader.directory / "oldest"
        note.unlink(missing_ok=True)
        if content is not None:
            note.write_bytes(content)
        assert IngestReader(tmp_path, "w", "e").start() == oldest
    assert everything(reader) == (left[oldest.row // 2 :], [])


def test_a_record_behind_a_damaged_one_without_rows_is_found(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, "w", "e")
    for payload_, rows in ((b"[1]", 1), (b"[]", 0), (b"[2]", 1)):
        receipt = log.append_blocking(payload_, rows)
        if not rows:
            damaged = receipt.offset
    log.close()
    path = Segment(directory_of(tmp_path, "w", "e"), 1).path
    content = bytearray(path.read_bytes())
    content[damaged + 4] ^= 1  # its length, so that nothing says where it ends
    path.write_bytes(content)
    found, damage = everything(IngestReader(tmp_path, "w", "e"))
    assert found == [b"[1]", b"[2]"]
    assert [(each.offset, each.size) for each in damage] == [(damaged, HEADER_BYTES + 2)]


def test_a_position_beyond_the_end_is_refused(tmp_path: Path) -> None:
    reader = written(tmp_path, 6)
    _, end = reader.plan(reader.start())
    shutil.rmtree(reader.directory)
    report = rf"was read up to segment 1, byte {end.offset}, row 12, and ends before that, at segment 1, byte 32, row 0"
    with pytest.raises(Damaged, match=report) as refused:
        IngestReader(tmp_path, "w", "e").plan(end)
    assert "one backup" in (refused.value.hint or "")
    written(tmp_path, 3)
    with pytest.raises(Damaged, match="ends before that"):
        IngestReader(tmp_path, "w", "e").plan(end)


def test_a_position_of_another_log_is_refused(tmp_path: Path) -> None:
    reader = written(tmp_path, 6)
    _, middle = reader.plan(reader.start(), rows=6)
    shutil.rmtree(reader.directory)
    log = IngestLog(tmp_path, "w", "e")
    for number in range(20):
        log.append_blocking(payload(number), 1, batch_id=f"{number}" if number % 3 == 0 else None)
    log.close()
    with pytest.raises(Damaged, match=r"has row 3 where row 6 comes next"):
        IngestReader(tmp_path, "w", "e").plan(middle)


def test_a_position_at_the_last_record_is_checked(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, "w", "e")
    last = [log.append_blocking(payload(number), 2) for number in range(3)][-1]
    log.close()
    reader = IngestReader(tmp_path, "w", "e")
    reader.check(LogPosition(1, last.offset, 4))
    with pytest.raises(Damaged, match="it has row 4 where row 3 comes next"):
        reader.check(LogPosition(1, last.offset, 3))


def test_two_pieces_of_damage_are_distinguished(tmp_path: Path) -> None:
    reader = written(tmp_path, 9)
    (part,), _ = reader.plan(reader.start())
    records = list(reader.open(part))
    path = Segment(reader.directory, 1).path
    data = bytearray(path.read_bytes())
    for number in (2, 3, 6):
        data[records[number].offset + 2] ^= 1
    path.write_bytes(data)
    found, damage = everything(reader)
    assert found == [payload(n) for n in (0, 1, 4, 5, 7, 8)]
    assert [each.rows for each in damage] == [2, 2, 2]
