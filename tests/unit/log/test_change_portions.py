"""Large tails of change logs: they are moved to the table in portions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.unit.log.test_changes import PLAIN, changes, users
from umbel.log import change_tail
from umbel.log.change_tail import FileTail
from umbel.log.changes import ChangeLog


def test_a_large_tail_is_moved_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it at once took some ten times its size in memory, which ended the worker at each attempt."""
    log, tail, write, sizes = ChangeLog(tmp_path / "log", PLAIN), FileTail(tmp_path / "tail"), ChangeLog._write, [0]
    monkeypatch.setattr(change_tail, "PORTION", 3)
    done = 0
    for batch, rows in enumerate((2, 2, 7, 0, 1), 1):
        tail.put(batch, changes([(number, number % 5) for number in range(done, done + rows)]))
        done += rows

    def written(log: ChangeLog, portion: pl.DataFrame, name: str) -> Any:
        sizes.append(portion.height)
        if len(sizes) == 3:
            raise OSError("no space left on device")
        return write(log, portion, name)

    monkeypatch.setattr(ChangeLog, "_write", written)
    with pytest.raises(OSError, match="no space"):
        log.flush(tail, 5)
    assert list((tmp_path / "log").rglob("*.parquet")) == []
    assert log.flush(tail, 5) == 12
    assert max(sizes) == 3
    assert users(log.read(tail)) == users(log.read(None)) == list(range(12))
    assert tail.size() == (0, 0)
