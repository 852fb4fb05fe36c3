"""Ids of batches in the ingest log: a batch is stored once, whatever crashed in between."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from umbel.errors import Transient
from umbel.log.appender import INDEX_BYTES, Appender
from umbel.log.batch_ids import BatchIds
from umbel.log.ingest import IngestLog
from umbel.log.reading import IngestReader
from umbel.log.records import Entry, digest_of
from umbel.log.segments import directory_of, segments_in
from umbel.log.tail import Tail


def payloads(reader: IngestReader) -> list[bytes]:
    ranges, _ = reader.plan(reader.start())
    return [record.entry.payload for part in ranges for record in reader.open(part)]


def test_a_batch_id_is_stored_once(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, "w", "e", segment_bytes=300)

    async def send() -> list[Any]:
        return await asyncio.gather(*(log.append(b"[%d]" % n, 1, batch_id=f"id{n % 3}") for n in range(9)))

    log.append_blocking(b"[plain]", 1)
    receipts = asyncio.run(send())
    assert sorted(receipt.is_duplicate for receipt in receipts) == [False] * 3 + [True] * 6
    assert len({receipt.offset for receipt in receipts}) == 3
    for number in range(20):
        log.append_blocking(b"[%d]" % number, 1)
    log.close()
    log = IngestLog(tmp_path, "w", "e")
    again = log.append_blocking(b"[other]", 1, batch_id="id1")
    log.close()
    first = next(receipt for receipt in receipts if not receipt.is_duplicate and receipt.offset == again.offset)
    assert again == replace(first.repeated(), has_other_rows=True)
    assert len(payloads(IngestReader(tmp_path, "w", "e"))) == 24


def test_ids_of_records_that_survived_a_crash_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = directory_of(tmp_path, "w", "e")
    appender = Appender(directory)
    appender.append([Entry(b"[1]", 1, 0, digest_of("a"))])
    with monkeypatch.context() as patch:
        patch.setattr("umbel.log.batch_ids.BatchIds.add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            appender.append([Entry(b"[2]", 1, 0, digest_of("b"))])
    appender.close()
    appender = Appender(directory)
    (receipt,) = appender.append([Entry(b"[2 again]", 1, 0, digest_of("b"))])
    appender.close()
    assert receipt.is_duplicate
    assert payloads(IngestReader(tmp_path, "w", "e")) == [b"[1]", b"[2]"]


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Have the system refuse longer files, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_records_are_accepted_where_the_disk_has_no_room_for_their_ids(tmp_path: Path) -> None:
    def batch(numbers: range) -> list[Entry]:
        return [Entry(b"[%d]" % number, 1, 0, digest_of(f"{number}")) for number in numbers]

    directory = directory_of(tmp_path, "w", "e")
    appender = Appender(directory)
    appender.append(batch(range(500)))
    with no_file_beyond((directory / "ids" / "data.mdb").stat().st_size):
        accepted = appender.append([*batch(range(500, 800)), Entry(b"[plain]", 1, 0)])
        with pytest.raises(Transient, match="cannot be written") as refused:  # their ids are to be compared first
            appender.append(batch(range(800, 801)))
    assert refused.value.hint
    assert not any(each.is_duplicate for each in accepted)
    assert all(each.is_duplicate for each in appender.append(batch(range(800))))
    appender.close()
    assert payloads(IngestReader(tmp_path, "w", "e")) == [*(b"[%d]" % number for number in range(800)), b"[plain]"]


def test_a_record_is_not_stored_where_its_mark_in_the_index_is_refused(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "w", "e")
    appender = Appender(directory)
    appender.append([Entry(b"[1]", 1, 0)])
    (segment,) = segments_in(directory)
    segment.index.mkdir()
    with pytest.raises(Transient, match="cannot be written"):
        appender.append([Entry(b"[%b]" % (b" " * INDEX_BYTES), 1, 0)])
    segment.index.rmdir()
    appender.append([Entry(b"[2]", 1, 0)])
    appender.close()
    assert [*map(len, payloads(IngestReader(tmp_path, "w", "e")))] == [3, 3]


def test_ids_that_a_crash_left_in_several_segments_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(to: Appender, number: int) -> bool:
        return to.append([Entry(b"[%d]" % number, 1, 0, digest_of(f"{number}"))])[0].is_duplicate

    directory = directory_of(tmp_path, "w", "e")
    appender = Appender(directory, segment_bytes=200)
    assert not any(send(appender, number) for number in range(3))
    with monkeypatch.context() as patch:
        patch.setattr("umbel.log.batch_ids.BatchIds.add", lambda *_: None)  # as if it died before, each time
        assert not any(send(appender, number) for number in range(3, 13))
    appender.close()
    assert len(segments_in(directory)) == 4
    appender = Appender(directory, segment_bytes=200)
    assert all(send(appender, number) for number in range(13))
    appender.close()


def test_erased_rows_and_lost_records_are_no_other_rows(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "w", "e")
    appender = Appender(directory)
    appender.append([Entry(b'[null     ,{"n":2}]', 2, 0, digest_of("a"), is_redacted=True)])
    sent = [b'[{"n":1},{"n":2}]', b'[{"n":1},{"n":3}]', b'[{"n":1}]']
    found = [appender.append([Entry(each, each.count(b"n"), 0, digest_of("a"))])[0] for each in sent]
    assert [receipt.has_other_rows for receipt in found] == [False, True, True]
    path = segments_in(directory)[-1].path
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    (receipt,) = appender.append([Entry(sent[1], 2, 0, digest_of("a"))])
    assert receipt.is_duplicate
    assert not receipt.has_other_rows
    appender.close()


PAGE = 4096
LAST_PAGE = 136 + 7
"""Where a file says how many pages it has: the highest byte of that number."""


def with_more_pages(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[LAST_PAGE] ^= 64
    changed[PAGE + LAST_PAGE] ^= 64
    return bytes(changed)


HARMS: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda _: b"",
    "garbage": lambda data: b"garbage!" * (len(data) // 8),
    "overwritten": lambda data: data[: 2 * PAGE] + b"garbage!" * ((len(data) - 2 * PAGE) // 8),
    "zeroed": lambda data: data[: 2 * PAGE] + bytes(len(data) - 2 * PAGE),
    "with more pages": with_more_pages,
}


@pytest.mark.parametrize("harm", HARMS)
def test_damaged_ids_are_read_from_the_records_again(tmp_path: Path, harm: str) -> None:
    def batch(numbers: range) -> list[Entry]:
        return [Entry(b"[%d]" % number, 1, 0, digest_of(f"{number}")) for number in numbers]

    directory = directory_of(tmp_path, "w", "e")
    appender = Appender(directory)
    appender.append(batch(range(500)))
    appender.close()
    file = directory / "ids" / "data.mdb"
    file.write_bytes(HARMS[harm](file.read_bytes()))
    appender, other = Appender(directory), BatchIds(directory)
    assert [each.is_duplicate for each in appender.append(batch(range(400, 600)))] == [True] * 100 + [False] * 100
    appender.append(batch(range(600, 610)))
    assert other.find(Tail(directory).end(), [digest_of("605")])
    assert all(each.is_duplicate for each in appender.append(batch(range(610))))
    appender.close()
    assert len(payloads(IngestReader(tmp_path, "w", "e"))) == 610


@pytest.mark.parametrize("harm", HARMS)
def test_segments_expire_where_the_ids_are_damaged(tmp_path: Path, harm: str) -> None:
    directory = directory_of(tmp_path, "w", "e")
    appender = Appender(directory, segment_bytes=2000)
    for number in range(200):
        appender.append([Entry(b"[%d]" % number, 1, 0, digest_of(f"{number}"))])
    appender.close()
    file = directory / "ids" / "data.mdb"
    file.write_bytes(HARMS[harm](file.read_bytes()))
    reader = IngestReader(tmp_path, "w", "e")
    deleted = reader.expire(1 << 60, Tail(directory).end())
    assert deleted
    appender = Appender(directory)
    assert [
        appender.append([Entry(b"[%d]" % each, 1, 0, digest_of(f"{each}"))])[0].is_duplicate for each in (0, 199)
    ] == [
        False,
        True,
    ]
    appender.close()


FLIPS = {"the first byte of an id": (0, 128), "its last byte": (15, 1), "its segment": (16, 2), "its row": (32, 1)}
"""Places after the beginning of an id, and bits of them."""


@pytest.mark.parametrize("place", FLIPS)
def test_a_flipped_bit_lets_no_repeated_batch_in(tmp_path: Path, place: str) -> None:
    entries = [Entry(b"[%d]" % number, 1, 0, digest_of(f"{number}")) for number in range(500)]
    directory, (byte, bit) = directory_of(tmp_path, "w", "e"), FLIPS[place]
    appender = Appender(directory)
    appender.append(entries)
    appender.close()
    file = directory / "ids" / "data.mdb"
    whole = file.read_bytes()
    for number in range(0, 500, 50):
        digest, data = digest_of(f"{number}"), bytearray(whole)
        at = data.find(digest)
        assert at > 0
        while at > 0:  # parents of pages have some, too
            data[at + byte] ^= bit
            at = data.find(digest, at + 1)
        file.write_bytes(data)
        appender = Appender(directory)
        receipts = appender.append(entries)
        appender.close()
        assert [receipt.row for receipt in receipts if receipt.is_duplicate] == [*range(500)]
    assert len(payloads(IngestReader(tmp_path, "w", "e"))) == 500


def test_ids_of_an_older_version_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [Entry(b"[%d]" % number, 1, 0, digest_of(f"{number}")) for number in range(20)]
    directory = directory_of(tmp_path, "w", "e")
    appender = Appender(directory)
    with monkeypatch.context() as patch:
        patch.setattr("umbel.log.batch_ids.sealed", lambda _, value: value)
        appender.append(entries[:10])
    assert [each.is_duplicate for each in appender.append(entries)] == [True] * 10 + [False] * 10
    assert all(each.is_duplicate for each in appender.append(entries))
    appender.close()


LOSSES: dict[str, Callable[[Path], object]] = {
    "halved": lambda file: os.truncate(file, file.stat().st_size // 2),
    "one page": lambda file: os.truncate(file, PAGE),
    "empty": lambda file: os.truncate(file, 0),
    "removed": lambda file: file.unlink(),
    "without a folder": lambda file: shutil.rmtree(file.parent),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_ids_that_are_cut_while_a_process_uses_them_are_read_again(tmp_path: Path, loss: str) -> None:
    def batch(numbers: range) -> list[Entry]:
        return [Entry(b"[%d]" % number, 1, 0, digest_of(f"{number}")) for number in numbers]

    directory = directory_of(tmp_path, "w", "e")
    appender, other = Appender(directory), Appender(directory)
    appender.append(batch(range(500)))
    LOSSES[loss](directory / "ids" / "data.mdb")
    assert [each.is_duplicate for each in other.append(batch(range(400, 600)))] == [True] * 100 + [False] * 100
    assert all(each.is_duplicate for each in appender.append(batch(range(600))))
    for each in (appender, other):
        each.close()
    assert len(payloads(IngestReader(tmp_path, "w", "e"))) == 600


def test_ids_of_another_log_are_not_used(tmp_path: Path) -> None:
    def log(name: str, numbers: range) -> Appender:
        appender = Appender(directory_of(tmp_path, "w", name))
        appender.append([Entry(b"[%d]" % number, 1, 0, digest_of(f"{number}")) for number in numbers])
        return appender

    for each in (log("mine", range(100)), log("other", range(50, 300))):
        each.close()
    mine, other = (directory_of(tmp_path, "w", name) / "ids" / "data.mdb" for name in ("mine", "other"))
    shutil.copyfile(other, mine)
    log("mine", range(200)).close()
    assert len(payloads(IngestReader(tmp_path, "w", "mine"))) == 200
