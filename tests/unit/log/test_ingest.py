"""The ingest log in one process: durable groups, order, limits, torn ends, batch ids, retention."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from umbel.errors import InvalidValue, Terminal, Transient
from umbel.log.appender import MARK, Appender
from umbel.log.ingest import IngestLog, IngestLogs
from umbel.log.reading import IngestReader, LogRange
from umbel.log.records import Entry, digest_of, size_of
from umbel.log.segments import ORIGIN, LogPosition, Segment, directory_of, segments_in
from umbel.log.tail import Tail
from umbel.state import disk


def payloads(reader: IngestReader, start: LogPosition | None = None) -> list[bytes]:
    ranges, _ = reader.plan(start or reader.start())
    return [record.entry.payload for part in ranges for record in reader.open(part)]


def fill(log: IngestLog, count: int, rows: int = 1) -> list[bytes]:
    sent = [b"[%d]" % number for number in range(count)]
    for payload in sent:
        log.append_blocking(payload, rows)
    return sent


def test_what_is_appended_is_read_in_order(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, "web", "payments")
    first = log.append_blocking(b"[1,2]", 2, received_at=5)
    second = log.append_blocking(b"[3]", 1)
    log.close()
    reader = IngestReader(tmp_path, "web", "payments")
    (part,), end = reader.plan(reader.start())
    records = list(reader.open(part))
    assert [(record.offset, record.row, record.entry.payload) for record in records] == [
        (first.offset, 0, b"[1,2]"),
        (second.offset, 2, b"[3]"),
    ]
    assert records[0].entry.received_at == 5
    assert abs(records[1].entry.received_at - time.time_ns() // 1000) < 60_000_000
    assert (end.row, part.rows) == (3, 3)
    assert reader.plan(end) == ([], end)


def test_a_log_nobody_wrote_is_empty(tmp_path: Path) -> None:
    reader = IngestReader(tmp_path, "web", "none")
    assert reader.plan(reader.start()) == ([], ORIGIN)
    assert not reader.directory.exists()


def test_concurrent_appenders_share_syncs_and_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = []
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (syncs.append(file), time.sleep(0.001), sync(file)))
    log = IngestLog(tmp_path, "web", "payments")

    async def send() -> list[int]:
        async def one(sender: int) -> list[int]:
            return [(await log.append(b"[%d]" % (sender * 100 + number), 1)).row for number in range(30)]

        return [row for rows in await asyncio.gather(*map(one, range(16))) for row in rows]

    rows = asyncio.run(send())
    log.close()
    assert sorted(rows) == list(range(480))
    found = payloads(IngestReader(tmp_path, "web", "payments"))
    assert sorted(found) == sorted(b"[%d]" % (sender * 100 + number) for sender in range(16) for number in range(30))
    assert len(syncs) < 240


def test_a_waiting_caller_that_goes_away_harms_nobody(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, "web", "payments")

    async def send() -> int:
        impatient = asyncio.ensure_future(log.append(b"[1]", 1))
        await asyncio.sleep(0)
        impatient.cancel()
        return (await log.append(b"[2]", 1)).rows

    assert asyncio.run(send()) == 1
    log.close()
    assert payloads(IngestReader(tmp_path, "web", "payments"))[-1] == b"[2]"


def test_segments_follow_each_other(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, "web", "payments", segment_bytes=400)
    sent = fill(log, 50, rows=3)
    log.close()
    reader = IngestReader(tmp_path, "web", "payments")
    assert len(segments_in(reader.directory)) > 3
    assert payloads(reader) == sent
    ranges, end = reader.plan(reader.start())
    assert [part.begin.row for part in ranges] == sorted({part.begin.row for part in ranges})
    assert sum(part.rows for part in ranges) == end.row == 150


def test_a_segment_ends_at_the_size_from_which_on_there_is_a_next_one(tmp_path: Path) -> None:
    appender = Appender(
        directory_of(tmp_path, "w", "e"), segment_bytes=ORIGIN.offset + 2 * size_of(Entry(b"[1]", 1, 0))
    )
    found = [appender.append([Entry(b"[1]", 1, 0)])[0].segment for _ in range(4)]
    appender.close()
    assert found == [1, 1, 2, 2]


@given(
    sizes=st.lists(st.integers(0, 400), max_size=25),
    limit=st.integers(1, 60),
    split=st.integers(1, 2000),
    segment=st.integers(100, 3000),
)
@examples(25)
def test_any_plan_reads_every_record_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, split: int, segment: int
) -> None:
    root = tmp_path_factory.mktemp("log")
    log = IngestLog(root, "w", "e", segment_bytes=segment)
    sent = [b"%d" % number + b"x" * size for number, size in enumerate(sizes)]
    rows = [size % 4 for size in sizes]
    for payload, count in zip(sent, rows, strict=True):
        log.append_blocking(payload, count)
    log.close()
    reader, found, at = IngestReader(root, "w", "e", split_bytes=split), [], None
    for _ in range(200):
        before = at or reader.start()
        ranges, at = reader.plan(before, rows=limit)
        assert ranges == reader.ranges(before, at)
        got = [record for part in ranges for record in reader.open(part)]
        taken = sum(record.entry.rows for record in got)
        assert taken == at.row - before.row
        assert taken - (got[-1].entry.rows if got else 0) < limit
        found += [record.entry.payload for record in got]
        if not ranges:
            break
    assert found == sent


def test_large_logs_are_planned_by_their_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = IngestLog(tmp_path, "w", "e")
    for _ in range(40):
        log.append_blocking(b"x" * 200_000, 10)
    log.close()
    reader = IngestReader(tmp_path, "w", "e", split_bytes=3 << 20)
    heads: list[Any] = []
    find = Segment.heads
    monkeypatch.setattr(Segment, "heads", lambda *args: (heads.append(args), find(*args))[1])
    ranges, end = reader.plan(reader.start())
    assert len(ranges) in (2, 3)
    assert end.row == 400
    assert Segment(reader.directory, 1).index.stat().st_size == 7 * MARK.size  # one for each whole megabyte
    assert len(heads) < 20  # one look per mark, none per record
    ranges, end = reader.plan(reader.start(), rows=205)
    assert end.row == 210
    ranges, end = reader.plan(reader.start(), bytes=2_500_000)
    assert 2_500_000 <= sum(part.bytes for part in ranges) <= 4_000_000


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b"\xff" * 37])
def test_an_index_of_any_content_does_no_harm(tmp_path: Path, damage: bytes) -> None:
    log = IngestLog(tmp_path, "w", "e")
    for _ in range(12):
        log.append_blocking(b"x" * 300_000, 1)
    log.close()
    reader = IngestReader(tmp_path, "w", "e", split_bytes=1 << 20)
    index = Segment(reader.directory, 1).index
    index.write_bytes(damage + index.read_bytes()[5:])
    assert len(payloads(reader)) == 12


def test_a_torn_end_is_cut_off_wherever_it_is_torn(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "w", "e")
    appender = Appender(directory)
    appender.append([Entry(b"[1]", 1, 0)])
    hint = (directory / "lock").read_bytes()
    (last,) = appender.append([Entry(b"[22]", 1, 0, digest_of("id"))])
    appender.close()
    segment = Segment(directory, 1)
    whole = segment.path.read_bytes()
    for size in range(last.offset, len(whole)):
        segment.path.write_bytes(whole[:size])
        (directory / "lock").write_bytes(hint)
        reader = IngestReader(tmp_path, "w", "e")
        tail = Tail(directory)
        with tail.locked():
            assert tail.end() == LogPosition(1, last.offset, 1)
        tail.close()
        assert payloads(reader) == [b"[1]"]
        appender = Appender(directory)
        (again,) = appender.append([Entry(b"[3]", 1, 0)])
        assert (again.offset, again.row) == (last.offset, 1)
        appender.close()
        assert payloads(reader) == [b"[1]", b"[3]"]


def test_a_record_written_without_its_hint_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = directory_of(tmp_path, "w", "e")
    appender = Appender(directory)
    appender.append([Entry(b"[1]", 1, 0)])
    with monkeypatch.context() as patch:
        patch.setattr(Tail, "move", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            appender.append([Entry(b"[2]", 1, 0)])
    appender.close()
    reader = IngestReader(tmp_path, "w", "e")
    assert payloads(reader) == [b"[1]"]  # the second was not acknowledged yet
    appender = Appender(directory)
    (receipt,) = appender.append([Entry(b"[3]", 1, 0)])
    appender.close()
    assert receipt.row == 2
    assert payloads(reader) == [b"[1]", b"[2]", b"[3]"]


@pytest.mark.parametrize("left", [0, 10, 31])
def test_a_segment_whose_creation_was_cut_short_is_made_again(tmp_path: Path, left: int) -> None:
    log = IngestLog(tmp_path, "w", "e")
    sent = fill(log, 3)
    log.close()
    directory = directory_of(tmp_path, "w", "e")
    Segment(directory, 2).path.write_bytes(b"umbellog"[:left].ljust(left, b"\0"))
    (directory / "lock").write_bytes(b"")
    log = IngestLog(tmp_path, "w", "e")
    assert log.append_blocking(b"[3]", 1).row == 3
    log.close()
    assert payloads(IngestReader(tmp_path, "w", "e")) == [*sent, b"[3]"]


def test_after_a_restart_of_the_machine_the_end_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = IngestLog(tmp_path, "w", "e")
    fill(log, 3)
    log.close()
    path = Segment(directory_of(tmp_path, "w", "e"), 1).path
    path.write_bytes(path.read_bytes()[:-2] + b"\0\0")  # same size, never reached the disk
    monkeypatch.setattr("umbel.log.tail.boot_id", lambda: b"another".ljust(36))
    assert payloads(IngestReader(tmp_path, "w", "e")) == [b"[0]", b"[1]"]


def test_damage_inside_a_log_is_reported(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, "w", "e")
    fill(log, 3)
    log.close()
    reader = IngestReader(tmp_path, "w", "e")
    (part,), _ = reader.plan(reader.start())
    path = Segment(reader.directory, 1).path
    data = bytearray(path.read_bytes())
    data[part.begin.offset + 70] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        Terminal, match=r"ingest/w/e/0+1.seg, 35 bytes from byte 102 on; up to 1 rows are lost, from row 2 on"
    ):
        list(reader.open(part))


def test_a_full_disk_refuses_and_leaves_the_log_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = IngestLog(tmp_path, "w", "e")
    log.append_blocking(b"[1]", 1)
    write = os.pwrite

    def fails_halfway(file: int, data: Any, offset: int) -> int:
        if len(data) > 1000:
            return write(file, bytes(data)[:1000], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fails_halfway)
        with pytest.raises(Transient, match="No space left") as raised:
            log.append_blocking(b"x" * 1500, 1)
        assert raised.value.hint == "free some disk space"
    log.append_blocking(b"[2]", 1)
    log.close()
    assert payloads(IngestReader(tmp_path, "w", "e")) == [b"[1]", b"[2]"]


@pytest.mark.parametrize(("number", "remedy"), [(errno.EROFS, "mount the disk"), (errno.EACCES, "chown -R")])
def test_a_folder_that_may_not_be_written_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    """It said to check the disk."""
    log = IngestLog(tmp_path, "w", "e")

    def fails(*_: object) -> None:
        raise OSError(number, "not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", fails)
        with pytest.raises(Transient, match="not permitted") as raised:
            log.append_blocking(b"[1]", 1)
        assert remedy in (raised.value.hint or "")
    log.append_blocking(b"[2]", 1)
    log.close()
    assert payloads(IngestReader(tmp_path, "w", "e")) == [b"[2]"]


def test_after_a_failed_sync_nothing_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = IngestLog(tmp_path, "w", "e")
    log.append_blocking(b"[1]", 1)

    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fails)
        with pytest.raises(Transient, match="Input/output") as raised:
            log.append_blocking(b"[2]", 1)
        assert raised.value.hint == "check the disk"
    with pytest.raises(Transient, match="failed to sync"):
        log.append_blocking(b"[3]", 1)
    log.close()


def test_retention_deletes_what_is_read_and_old(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, "w", "e", segment_bytes=300)
    for number in range(30):
        log.append_blocking(b"[%d]" % number, 1, batch_id=str(number))
    reader = IngestReader(tmp_path, "w", "e")
    _, middle = reader.plan(reader.start(), rows=15)
    future = time.time_ns() // 1000 + 10**9
    assert reader.expire(0, middle) == []
    deleted = reader.expire(future, middle)
    assert deleted == list(range(1, middle.segment))
    assert payloads(reader, middle) == [b"[%d]" % number for number in range(15, 30)]
    assert reader.start().segment == middle.segment
    assert 0 < reader.start().row <= 15
    assert not log.append_blocking(b"[0]", 1, batch_id="0").is_duplicate
    assert log.append_blocking(b"[29]", 1, batch_id="29").is_duplicate
    log.close()
    with pytest.raises(Terminal, match="deleted before"):
        reader.plan(LogPosition(1, 80, 1))
    assert reader.plan(ORIGIN)[0][0].begin == reader.start()


def test_names_become_safe_file_names(tmp_path: Path) -> None:
    names = ["a/b", "..", ".", "ü", "a b", "a%2Fb"]
    found = {directory_of(tmp_path, name, name) for name in names}
    assert len(found) == len(names)
    assert all(path.parent.parent == tmp_path / "ingest" for path in found)
    with pytest.raises(InvalidValue, match="endpoint"):
        directory_of(tmp_path, "web", "")
    with pytest.raises(InvalidValue, match="webhook"):
        directory_of(tmp_path, "x" * 300, "e")


def test_all_logs_of_a_process(tmp_path: Path) -> None:
    logs = IngestLogs(tmp_path)
    assert logs.log("w", "a") is logs.log("w", "a")
    logs.log("w", "b").append_blocking(b"[]", 0)
    logs.close()
    with pytest.raises(InvalidValue):
        IngestLogs(tmp_path).log("w", "c").append_blocking(b"[]", -1)


def test_ranges_are_plain_facts() -> None:
    part = LogRange(LogPosition(1, 32, 0), LogPosition(1, 132, 7))
    assert (part.bytes, part.rows) == (100, 7)
    assert LogPosition.from_json(part.end.to_json()) == part.end
