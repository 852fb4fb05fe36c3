"""Power failures between any two file operations: what was acknowledged, or seen by a reader, is there afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.simulated_disk import Disk, PowerFailure, failing
from umbel.log.appender import Appender
from umbel.log.change_tail import FileTail
from umbel.log.changes import ChangeLog
from umbel.log.features import FeatureLog
from umbel.log.reading import IngestReader
from umbel.log.records import Entry
from umbel.log.segments import LogPosition, directory_of, read_oldest
from umbel.runtime.plans import Plans

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def failures(tmp_path: Path, work: Callable[[Path, Disk], None], check: Callable[[Path], None]) -> int:
    """Let the power fail before each operation of some work, and check what is left; return how many there are."""
    number = 0
    while True:
        number += 1
        root = tmp_path / f"{number}"
        root.mkdir()
        disk = Disk(root, failing(number))
        with disk.used(), suppress(PowerFailure):
            work(root, disk)
        for seed, retained in enumerate(("nothing", ("all", "some")[number % 2])):
            disk.left(tmp_path / "left", retained, seed + number)
            check(tmp_path / "left")
        if disk.count < number:
            return number - 1


@pytest.fixture(autouse=True)
def another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = iter(range(10**9))
    monkeypatch.setattr("umbel.log.tail.boot_id", lambda: b"%036d" % next(runs))


def test_what_the_ingest_log_acknowledged_is_there(tmp_path: Path) -> None:
    acknowledged = list[bytes]()

    def work(root: Path, _: Disk) -> None:
        acknowledged.clear()
        appender = Appender(directory_of(root, "w", "e"), segment_bytes=120)
        for number in range(4):
            payload = b"[%d]" % number
            appender.append([Entry(payload, 1, 0), Entry(payload, 1, 0)])
            acknowledged.extend([payload] * 2)

    def check(root: Path) -> None:
        due = list(acknowledged)
        appender = Appender(directory_of(root, "w", "e"))
        appender.append([Entry(b"[9]", 1, 0)])
        reader = IngestReader(root, "w", "e")
        found = [each for part in reader.plan(reader.start())[0] for each in reader.open(part, lambda _: None)]
        payloads = [each.entry.payload for each in found]
        assert payloads[: len(due)] == due
        assert payloads[-1] == b"[9]"
        assert [each.row for each in found[: len(due)]] == list(range(len(due)))

    assert failures(tmp_path, work, check) > 8


def test_what_a_reader_has_seen_is_there(tmp_path: Path) -> None:
    seen = list[tuple[bytes, int]]()
    reached = list[LogPosition]()

    def work(root: Path, disk: Disk) -> None:
        seen.clear()
        reached.clear()
        appender = Appender(directory_of(root, "w", "e"), segment_bytes=120)
        reader, fail, looks = IngestReader(root, "w", "e"), disk.before, False

        def look(number: int, name: str) -> None:
            nonlocal looks
            report = directory_of(root, "w", "e") / "lock"
            if (
                name == "sync" and not looks and report.exists() and report.stat().st_size
            ):  # written, and not synced by who wrote it
                looks = True
                ranges, end = reader.plan(reached[-1] if reached else reader.start())
                seen.extend((each.entry.payload, each.row) for part in ranges for each in reader.open(part))
                reached.append(end)
                looks = False
            fail(number, name)

        disk.before = look
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("umbel.log.tail.boot_id", lambda: b"1" * 36)
            for number in range(4):
                appender.append([Entry(b"[%d]" % number, 1, 0)])

    def check(root: Path) -> None:
        Appender(directory_of(root, "w", "e")).append([Entry(b"[9]", 1, 0)])
        reader = IngestReader(root, "w", "e")
        found = [each for part in reader.plan(reader.start())[0] for each in reader.open(part, lambda _: None)]
        assert set(seen) <= {(each.entry.payload, each.row) for each in found}
        if reached:
            reader.plan(reached[-1])

    assert failures(tmp_path, work, check) > 8


def test_retention_is_whole_or_not_at_all(tmp_path: Path) -> None:
    def work(root: Path, _: Disk) -> None:
        appender = Appender(directory_of(root, "w", "e"), segment_bytes=60)
        for number in range(4):
            appender.append([Entry(b"[%d]" % number, 1, 0)])
        reader = IngestReader(root, "w", "e")
        reader.expire(10**18, reader.plan(reader.start(), rows=3)[1])

    def check(root: Path) -> None:
        directory = directory_of(root, "w", "e")
        Appender(directory).append([Entry(b"[9]", 1, 0)])
        reader = IngestReader(root, "w", "e")
        found = [each for part in reader.plan(reader.start())[0] for each in reader.open(part)]  # nothing is damaged
        assert [each.row for each in found] == list(range(found[0].row, found[-1].row + 1))
        assert read_oldest(directory) is not None

    assert failures(tmp_path, work, check) > 8


class Counting:
    """A source that has something new each time."""

    dataset, source, key, trouble = "D", 0, "k", ""
    is_bounded = has_ended = is_loading = loads_unordered = False

    def read_ahead(self) -> None:
        pass

    def plan(self, position: int | None, _: int) -> tuple[Any, int]:
        return [({"begin": position or 0}, 10)], (position or 0) + 1

    def unread_partitions(self, position: int | None) -> tuple[str, ...]:
        return ()

    def check(self, position: int | None) -> None:
        pass


def test_a_plan_that_was_made_is_there(tmp_path: Path) -> None:
    made = list[int]()

    def opened(root: Path) -> Plans:
        return Plans(root / "plans", lambda: (1, [Counting()]), lambda: 100, lambda: False)

    def work(root: Path, _: Disk) -> None:
        made.clear()
        plans = opened(root)
        for number in range(4):
            made.append(plans.next(number))
        plans.forget(3, keep=2)

    def check(root: Path) -> None:
        plans, last = opened(root), made[-1] if made else 0
        for number in made[-2:]:
            assert plans.read(number).positions == {"k": number}
        assert plans.next(last) == last + 1
        assert plans.read(last + 1).positions == {"k": last + 1}

    assert failures(tmp_path, work, check) > 8


def test_what_the_feature_log_has_taken_is_there(tmp_path: Path) -> None:
    taken = list[bytes]()

    def work(root: Path, _: Disk) -> None:
        taken.clear()
        log = FeatureLog(root / "features")
        for number in range(3):
            line = b'{"timestamp":"2024-01-0%dT00:00:00.000000Z","n":%d}\n' % (number % 2 + 1, number)
            log.append("main", "w", f"2024-01-0{number % 2 + 1}", [line, line])
            taken.extend([line, line])

    def check(root: Path) -> None:
        found = b"".join(FeatureLog(root / "features").read("main")).splitlines(keepends=True)
        assert all(found.count(line) >= taken.count(line) for line in taken)
        assert all(line.endswith(b"}\n") for line in found)

    assert failures(tmp_path, work, check) > 5


def test_changes_that_were_put_are_there(tmp_path: Path) -> None:
    columns = {"k": pl.String(), "_at": pl.Datetime("us", "UTC"), "_weight": pl.Int64(), "_seq": pl.Int64()}
    put = list[int]()
    parts = list[Any]()

    def changes(number: int) -> pl.DataFrame:
        return pl.DataFrame({"k": [f"{number}"], "_at": [NOON], "_weight": [1], "_seq": [number]}, schema=columns)

    def work(root: Path, _: Disk) -> None:
        put.clear()
        parts.clear()
        log, tail = ChangeLog(root / "log", columns), FileTail(root / "log" / "_tail")
        for number in range(3):
            tail.put(number, changes(number), number - 1)
            put.append(number)
        parts.extend(log.write(changes(7), 7))

    def check(root: Path) -> None:
        tail = FileTail(root / "log" / "_tail")
        assert tail.missing(put[-1] if put else -1, -1) is None
        found = tail.read(-1)
        assert found is None or found.height >= len(put)
        assert set(put) <= (set() if found is None else set(found["_seq"]))
        for part in parts:
            assert pl.read_parquet(root / "log" / part.path).height == 1

    assert failures(tmp_path, work, check) > 5
