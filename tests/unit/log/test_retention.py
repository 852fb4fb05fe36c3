"""What is old or too much goes; what somebody has not read stays."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.kills import Killed, kill
from umbel.log.features import FeatureLog
from umbel.log.ingest import IngestLog
from umbel.log.reading import IngestReader
from umbel.log.segments import LogPosition, segments_in
from umbel.state import disk


def filled(folder: Path) -> IngestReader:
    """Return the reader of a log of several segments."""
    log = IngestLog(folder, "web", "a", segment_bytes=200)
    for _ in range(12):
        log.append_blocking(b'[{"n": 1}]' * 5, 5)
    log.close()
    return IngestReader(folder, "web", "a")


def test_too_many_bytes_are_deleted_before_their_retention(tmp_path: Path) -> None:
    reader = filled(tmp_path)
    segments = segments_in(reader.directory)
    most, third = sum(each.path.stat().st_size for each in segments[2:]), segments[2].first_row()
    assert reader.expire(0, reader.end(), most) == [1, 2]
    assert reader.expire(0, reader.end(), most) == []
    assert reader.expire(0, reader.end(), 0) == []
    assert reader.start().row == third


def test_a_pass_that_is_killed_leaves_no_file_of_a_deleted_segment(tmp_path: Path) -> None:
    """The index of a segment was deleted after it, and stayed where the pass ended in between."""
    for step in range(1, 6):
        reader = filled(tmp_path / str(step))
        segments = segments_in(reader.directory)
        for each in segments:
            each.index.touch()
        most = sum(each.path.stat().st_size for each in segments[2:])
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
            patch.setattr(disk, "remove", killing(step))
            reader.expire(0, reader.end(), most)
        reader.expire(0, reader.end(), most)
        left = {int(path.stem) for path in reader.directory.iterdir() if path.suffix in (".seg", ".idx")}
        assert left == {each.number for each in segments[2:]}, step


def killing(step: int) -> Callable[[Path], None]:
    """Return a deletion of files that kills instead of the one of a number."""
    remove, turns = disk.remove, itertools.count(1)

    def deleting(path: Path) -> None:
        if next(turns) == step:
            kill()
        remove(path)

    return deleting


def test_what_is_not_read_stays_however_much_it_is(tmp_path: Path) -> None:
    reader = filled(tmp_path)
    second = segments_in(reader.directory)[1]
    assert reader.expire(0, LogPosition(second.number, 32, 10), 1) == [1]
    assert reader.start().segment == 2


def day(log: FeatureLog, back: int, lines: int = 10) -> str:
    at = datetime.now(UTC) - timedelta(days=back)
    name = f"{at:%Y-%m-%d}"
    for workflow in ("fraud", "churn"):
        log.append(
            "main", workflow, name, [b'{"timestamp":"%b","x":1}\n' % f"{at:%Y-%m-%dT%H:%M:%S.%fZ}".encode()] * lines
        )
    return name


def test_days_of_the_feature_log_are_deleted_by_age(tmp_path: Path) -> None:
    log = FeatureLog(tmp_path)
    names = [day(log, back) for back in (40, 35, 5, 0)]
    assert log.expire(datetime.now(UTC) - timedelta(days=30)) == names[:2]
    assert log.expire(datetime.now(UTC) - timedelta(days=30)) == []
    assert sorted({each.name for each in tmp_path.glob("*/*/*")}) == names[2:]
    assert sum(block.count(b"\n") for block in log.read("main")) == 40


def test_days_of_the_feature_log_are_deleted_by_size_but_not_today(tmp_path: Path) -> None:
    log = FeatureLog(tmp_path)
    names = [day(log, back) for back in (3, 2, 1, 0)]
    size = sum(each.stat().st_size for each in tmp_path.rglob("*.ndjson"))
    assert log.expire(None, size) == []
    assert log.expire(None, size // 2) == names[:2]
    assert log.expire(None, 1) == names[2:3]
    assert log.expire(datetime.now(UTC) + timedelta(days=9), 1) == []
