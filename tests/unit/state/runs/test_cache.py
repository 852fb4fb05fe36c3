"""The cache of runs on a machine: its limit, the files of others in its folder, and failures of the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from uuid import uuid4

import pytest

from umbel.state.runs.cache import RunCache

RUN = bytes(1000)


def named() -> str:
    return f"{uuid4().hex}.run"


def test_the_limit_deletes_no_files_of_others(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("notes.txt", "model.run", "catalog.db")]
    for path in others:
        path.write_bytes(bytes(5000))
    left = tmp_path / f"{named()}.{uuid4().hex}.draft"
    left.write_bytes(RUN)
    os.utime(left, (0, 0))
    cache = RunCache(tmp_path, 2500)
    names = [named() for _ in range(5)]
    assert all(cache.add(name, RUN) for name in names)
    assert all(path.exists() for path in others)
    assert not left.exists()
    assert (tmp_path / names[-1]).exists()
    assert cache.size() == 2000


def test_a_cache_that_cannot_be_looked_through_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: RunCache) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    cache = RunCache(tmp_path / "cache", 2500)
    monkeypatch.setattr(RunCache, "_entries", fail)
    assert cache.add("one.run", RUN)
    assert cache.mapped("two.run", lambda: RUN).to_pybytes() == RUN


def test_copies_are_for_reading_only(tmp_path: Path) -> None:
    cache = RunCache(tmp_path, 2500)
    cache.add("one.run", RUN)
    assert (tmp_path / "one.run").stat().st_mode & 0o777 == 0o400
    assert cache.mapped("one.run", bytes).to_pybytes() == RUN


def test_a_copy_that_was_cut_is_found(tmp_path: Path) -> None:
    cache = RunCache(tmp_path, 2500)
    assert not cache.is_cut("one.run", len(RUN))
    cache.add("one.run", RUN)
    assert not cache.is_cut("one.run", len(RUN))
    os.truncate(tmp_path / "one.run", 10)
    assert cache.is_cut("one.run", len(RUN))
