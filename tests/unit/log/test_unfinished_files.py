"""Files of change logs that a killed process was writing are deleted, in time."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.kills import Killed, kill
from tests.unit.log.test_change_retention import KEYLESS, change, day, free, written
from umbel.log.change_retention import RetentionLimits, drop_oldest
from umbel.log.change_rewriting import forget_history
from umbel.log.changes import RETAINED_FOR, ChangeLog
from umbel.state import disk


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return written(tmp_path, KEYLESS, [[change(n, n)] for n in range(6)])


def begun(log: ChangeLog) -> list[Path]:
    """Return files as Delta Lake's library begins them, a merged file and a commit."""
    month = next(log.path.glob("_at_month=*"))
    found = [month / "part-00000-c000.zstd.parquet#1", log.path / "_delta_log/00000000000000000009.json#12"]
    for path in found:
        path.write_bytes(b"rows")
    return found


def test_what_a_killed_process_had_begun_goes_when_nobody_writes_it(log: ChangeLog) -> None:
    """The library, which does not list such files, left them on the disk for ever."""
    old, young = begun(log)
    past = time.time() - RETAINED_FOR.total_seconds() - 60
    os.utime(old, (past, past))
    assert log.vacuum() == [old.relative_to(log.path).as_posix()]
    assert (old.exists(), young.exists()) == (False, True)
    assert log.vacuum(timedelta(0)) == [young.relative_to(log.path).as_posix()]
    assert sorted(log.read()["user"]) == list(range(6))


def test_an_erasure_leaves_no_file_that_was_begun(log: ChangeLog) -> None:
    found = begun(log)
    forget_history(log)
    assert [path.exists() for path in found] == [False, False]
    assert sorted(log.read()["user"]) == list(range(6))


def test_a_drop_that_was_killed_leaves_no_draft(log: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, link = RetentionLimits(before=day(2)), disk.link

    def killed(draft: Path, path: Path) -> None:
        link(draft, path)
        (draft.parent / ".00000000000000000005.json.new").write_bytes(draft.read_bytes())
        kill()

    monkeypatch.setattr(disk, "link", killed)
    with pytest.raises(Killed):
        drop_oldest(log, (), limits, free)
    monkeypatch.undo()
    assert sorted(log.read()["user"]) == [2, 3, 4, 5]
    log.vacuum(timedelta(0))
    assert list(log.path.glob("_delta_log/.*")) == []
    assert drop_oldest(log, (), limits, free) == 0
