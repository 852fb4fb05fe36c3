"""Files and records of another place, and journals that lost their end, are damage: they are never read as state."""

from __future__ import annotations

import shutil
import struct
import zlib
from pathlib import Path

import pytest

from tests.unit.state.runs.tables import SUMMED, A, found, opened, write
from umbel.errors import Damaged
from umbel.state.port import Fenced, JournalEnd, Stamp
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.inspection import inspect, repair
from umbel.state.runs.journal import HEADER_BYTES, Journal
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.manifest import Manifest, publish, read_latest
from umbel.state.runs.records import RECORD_BYTES, PlacedRecord, moved, place_of
from umbel.state.runs.shard import Shard, ShardOptions
from umbel.state.runs.shard_names import KnownStore

WIDE = ShardOptions(flush_bytes=1)


def filled(folder: Path, amount: int, batches: int = 3) -> Shard:
    shard = opened(folder, WIDE)
    shard.create()
    for batch in range(batches):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(1, batch, amount)])
    return shard


def journal_of(folder: Path) -> Path:
    return max((folder / "journal").iterdir())


def records_of(folder: Path) -> list[PlacedRecord]:
    """Return the records of a journal of one file."""
    journal = Journal(LocalFiles(folder))
    header = journal.header(1)
    assert header is not None
    return journal.read(1, HEADER_BYTES, header.end)


def refused(folder: Path, least: JournalEnd | None = None) -> str:
    """Return why a shard cannot be read, after its inspection has found the same."""
    seen = inspect(LocalFiles(folder), deep=True, least=least)
    assert seen.journal or seen.lost == {A}
    shard = opened(folder, WIDE)
    shard.least = least or JournalEnd()
    with pytest.raises(Damaged) as error:
        shard.snapshot()
    return error.value.message


def test_a_journal_of_another_shard_is_damaged(tmp_path: Path) -> None:
    folders = [tmp_path / f"shard-00{number}" for number in range(2)]
    for amount, folder in enumerate(folders, 10):
        filled(folder, amount)
    assert journal_of(folders[0]).stat().st_size == journal_of(folders[1]).stat().st_size
    shutil.copyfile(journal_of(folders[1]), journal_of(folders[0]))
    assert "is from elsewhere" in refused(folders[0])
    assert found(opened(folders[1]).snapshot(), SUMMED) == [(1, hour, 11, 11) for hour in range(3)]


@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 2), (0, 2)])
def test_records_that_changed_places_are_damaged(tmp_path: Path, one: int, other: int) -> None:
    folder = tmp_path / "shard-000"
    filled(folder, 10)
    records = records_of(folder)
    data = bytearray(journal_of(folder).read_bytes())
    spans = [slice(records[each].start, records[each].end) for each in (one, other)]
    parts = [bytes(data[span]) for span in spans]
    assert len(parts[0]) == len(parts[1])
    for span, part in zip(spans, reversed(parts), strict=True):
        data[span] = part
    journal_of(folder).write_bytes(data)
    assert f"byte {records[one].start}" in refused(folder)


def test_a_record_that_was_written_unreadable_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / "shard-000"
    filled(folder, 10)
    last = records_of(folder)[-1]
    data = bytearray(journal_of(folder).read_bytes())
    payload = data[last.start + RECORD_BYTES : last.end]
    stream = payload.index(b"\xff\xff\xff\xff")  # a message of Arrow begins so
    payload[stream + 8 :] = bytes(len(payload) - stream - 8)
    record = bytearray(data[last.start : last.start + RECORD_BYTES]) + payload
    struct.pack_into("<I", record, 16, zlib.crc32(payload))
    data[last.start : last.end] = moved(bytes(record), place_of("shard-000", 1, last.start))
    journal_of(folder).write_bytes(data)
    assert "a record cannot be read" in refused(folder)


def test_records_of_an_older_version_are_read_anywhere(tmp_path: Path) -> None:
    folder = tmp_path / "shard-000"
    filled(folder, 10)
    data = journal_of(folder).read_bytes()
    older = data[:HEADER_BYTES]
    for each in records_of(folder):
        assert moved(data[each.start : each.end], place_of("shard-000", 1, each.start)) == data[each.start : each.end]
        older += moved(data[each.start : each.end], 0)
    journal_of(folder).write_bytes(older)
    assert found(opened(folder).snapshot(), SUMMED) == [(1, hour, 10, 10) for hour in range(3)]
    filled(folder, 1, 0)
    with opened(folder).transaction([A], Stamp(1, 3)) as tx:
        write(tx, SUMMED, [(1, 3, 7)])
    assert found(opened(folder).snapshot(), SUMMED)[-1] == (1, 3, 7, 7)


def test_runs_and_manifests_of_another_shard_are_damaged(tmp_path: Path) -> None:
    folders = [tmp_path / f"shard-00{number}" for number in range(2)]
    for amount, folder in enumerate(folders, 10):
        maintain(filled(folder, amount))
    (mine,), (other,) = ((each / "runs").glob("*.run") for each in folders)
    assert mine.stat().st_size == other.stat().st_size
    before = mine.read_bytes()
    shutil.copyfile(other, mine)
    assert f"it was written as {other.name}" in refused(folders[0])
    mine.write_bytes(before)
    latest = max((folders[0] / "manifest").iterdir())
    shutil.copyfile(folders[1] / "manifest" / latest.name, latest)
    with pytest.raises(Damaged, match="it is of shard-001"):
        opened(folders[0]).snapshot()
    assert inspect(LocalFiles(folders[0]), deep=True).damaged == [latest.name]


def test_a_journal_that_lost_its_last_records_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "shard-000"
    filled(folder, 10, 2)
    older = journal_of(folder).read_bytes()
    shard = opened(folder, WIDE)
    with shard.transaction([A], Stamp(1, 2)) as tx:
        write(tx, SUMMED, [(1, 2, 10)])
    least = shard.end
    assert least == JournalEnd(1, journal_of(folder).stat().st_size, 0)
    sound = opened(folder)
    sound.least = least
    assert len(found(sound.snapshot(), SUMMED)) == 3
    journal_of(folder).write_bytes(older)  # as a restored copy of this file: nothing in it is wrong
    assert inspect(LocalFiles(folder), deep=True).lost == set()
    assert f"wrote up to byte {least.offset}" in refused(folder, least)


def test_a_shortened_journal_goes_on_behind_its_former_end_after_a_repair(tmp_path: Path) -> None:
    folder = tmp_path / "shard-000"
    least = filled(folder, 10, 4).end
    shutil.rmtree(folder)
    filled(folder, 10, 2)
    repair(LocalFiles(folder), inspect(LocalFiles(folder), deep=True, least=least))
    assert inspect(LocalFiles(folder), deep=True, least=least).lost == set()
    shard = opened(folder)
    shard.least = least
    with shard.transaction([A], Stamp(1, 0)) as tx:
        write(tx, SUMMED, [(2, 0, 1)])
    assert found(shard.snapshot(), SUMMED) == [(2, 0, 1, 1)]
    assert shard.end > least


def test_lost_manifests_are_damage_apart_from_the_last_one(tmp_path: Path) -> None:
    folder = tmp_path / "shard-000"
    shard = filled(folder, 10)
    for _ in range(3):
        publish(shard.files, read_latest(shard.files))
    shard.refresh()
    least = shard.end
    assert least.version == 3
    manifests = sorted((folder / "manifest").iterdir())
    manifests[-1].unlink()
    one = opened(folder)
    one.least = least
    assert len(found(one.snapshot(), SUMMED)) == 3
    for path in manifests[:-1]:
        path.unlink()
    assert "its manifests of version 2 and later are missing" in refused(folder, least)
    repair(shard.files, inspect(shard.files, deep=True, least=least))
    assert not inspect(shard.files, deep=True, least=least).journal
    assert read_latest(shard.files).version > least.version


def test_deleted_state_is_gone_also_without_the_last_manifest(tmp_path: Path) -> None:
    folder = tmp_path / "shard-000"
    shard = filled(folder, 10)
    shard.drop(A)
    with shard.transaction([A], Stamp(1, 0)) as tx:
        write(tx, SUMMED, [(1, 0, 1)])
    max((folder / "manifest").iterdir()).unlink()
    assert found(opened(folder).snapshot(), SUMMED) == [(1, 0, 1, 1)]


def of_store(folder: Path, identity: str) -> Shard:
    """Return a shard of a store with an identity."""
    files = LocalFiles(folder)
    files.store = KnownStore(identity)
    return Shard(files, opened(folder).schemas, WIDE)


def test_a_journal_of_an_older_version_gets_the_mark_of_its_store_with_the_next_record(tmp_path: Path) -> None:
    folder = tmp_path / "shard-000"
    filled(folder, 10)
    assert journal_of(folder).read_bytes()[24:HEADER_BYTES] == bytes(40)
    for identity in ("one", "two"):
        assert len(found(of_store(folder, identity).snapshot(), SUMMED)) == 3
    with of_store(folder, "one").transaction([A], Stamp(1, 3)) as tx:
        write(tx, SUMMED, [(1, 3, 10)])
    assert len(found(of_store(folder, "one").snapshot(), SUMMED)) == 4
    assert len(found(opened(folder).snapshot(), SUMMED)) == 4
    with pytest.raises(Damaged, match="it is of another store"):
        of_store(folder, "two").snapshot()
    with opened(folder).transaction([A], Stamp(1, 4)) as tx:
        write(tx, SUMMED, [(1, 4, 10)])
    with pytest.raises(Damaged, match="it is of another store"):
        of_store(folder, "two").snapshot()


def test_a_damaged_mark_of_a_store_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / "shard-000"
    with of_store(folder, "one").transaction([A], Stamp(1, 0)) as tx:
        write(tx, SUMMED, [(1, 0, 10)])
    data = bytearray(journal_of(folder).read_bytes())
    for at in (24, 39, 40, 43):
        journal_of(folder).write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(Damaged, match="its header differs from its checksum"):
            of_store(folder, "one").snapshot()


def test_a_mark_that_a_crash_left_behind_is_made_good(tmp_path: Path) -> None:
    """After a crash of the machine the header is behind the records: they count again once the journal is recovered."""
    folder = tmp_path / "shard-000"
    filled(folder, 10, 2)
    head = journal_of(folder).read_bytes()[:HEADER_BYTES]
    shard = filled(folder, 10, 0)
    with shard.transaction([A], Stamp(1, 2)) as tx:
        write(tx, SUMMED, [(1, 2, 10)])
    data = journal_of(folder).read_bytes()
    journal_of(folder).write_bytes(head + data[HEADER_BYTES:])
    assert inspect(LocalFiles(folder), deep=True, least=shard.end).lost == set()
    again = opened(folder)
    again.least = shard.end
    assert len(found(again.snapshot(), SUMMED)) == 3


def test_a_manifest_tells_its_shard(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path / "shard-007")
    assert publish(files, Manifest()).shard == "shard-007"
    assert publish(LocalFiles(tmp_path / "other"), Manifest()).shard == ""
    with pytest.raises(Fenced):
        publish(files, Manifest())
