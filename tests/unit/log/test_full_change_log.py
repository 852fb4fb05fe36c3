"""A change log on a disk that is full: the error names it, and nothing of the attempt is left."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.unit.log.test_changes import PLAIN, changes, users
from umbel.errors import Transient
from umbel.log.change_tail import FileTail
from umbel.log.changes import ChangeLog
from umbel.state import disk


def test_a_flush_that_cannot_commit_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, tail = ChangeLog(tmp_path / "log", PLAIN), FileTail(tmp_path / "tail")
    tail.put(0, changes([(1, 0), (2, 40)]))

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("Generic LocalFileSystem error\n  No space left on device (os error 28)\n")  # as Delta says it

    with monkeypatch.context() as full:
        full.setattr(DeltaTable, "create_write_transaction", refuse)
        with pytest.raises(Transient, match=rf"{log.path} cannot be written: No space left on device") as caught:
            log.flush(tail, 0)
    assert caught.value.hint == "free some disk space"
    assert [*log.path.rglob("*.parquet")] == []
    assert log.flush(tail, 0) == 2
    assert users(log.read(tail)) == [1, 2]


def test_a_flush_that_cannot_sync_its_commit_leaves_what_is_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, tail = ChangeLog(tmp_path / "log", PLAIN), FileTail(tmp_path / "tail")
    tail.put(0, changes([(1, 0)]))
    log.flush(tail, 0)
    tail.put(1, changes([(2, 0)]))

    def refuse(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(ChangeLog, "_sync_commits", refuse)
        with pytest.raises(OSError, match="Input/output"):
            log.flush(tail, 1)
    log.flush(tail, 1)
    assert users(log.read(tail)) == [1, 2]


@pytest.mark.parametrize("write", [disk.write_new, disk.replace])
def test_a_file_that_does_not_fit_is_named(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "write", refuse)
    with pytest.raises(OSError, match=r"No space left on device: '.*plan\.json") as caught:
        write(tmp_path / "plan.json", b"x")
    assert Path(caught.value.filename).parent == tmp_path
