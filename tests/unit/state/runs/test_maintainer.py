"""The thread that maintains shards: when it works, what happens when it fails, and its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.state.runs.tables import (
    REPLACED,
    SCHEMAS,
    SMALL,
    SUMMED,
    A,
    found,
    opened,
    write,
)
from umbel.errors import Transient
from umbel.state.port import Stamp
from umbel.state.runs import maintenance
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.maintenance import Maintainer, maintain
from umbel.state.runs.shard import Shard


def wait_until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.01)


def test_failed_maintenance_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shard, maintainer = opened(tmp_path), Maintainer(stall=1_000_000)

    def fail(*_: object) -> None:
        raise Transient("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("umbel.state.runs.maintenance.pack_run", fail)
        for batch in range(2):  # the first batch is final with the second
            with shard.transaction([A], Stamp(1, batch)) as tx:
                write(tx, SUMMED, [(1, 0, 1)])
        maintainer.after(shard)
        wait_until(lambda: shard in maintainer.errors)
        maintainer.close()
    assert "maintenance of state failed" in caplog.text
    assert "the disk is full" in caplog.text
    assert maintain(shard)
    assert shard.refresh().manifest.runs


@pytest.mark.parametrize("step", ["next_merge", "merged_ranges"])
def test_state_that_is_dropped_meanwhile_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    shard = Shard(LocalFiles(tmp_path), None, SMALL)
    for table in (REPLACED, SUMMED):
        shard.define(table, SCHEMAS[table])
    for batch in range(5):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            for table, value in ((REPLACED, "x"), (SUMMED, 1)):
                write(tx, table, [(1, batch, value)])
        if batch == 2 and step == "next_merge":
            assert maintain(shard)
    done = getattr(maintenance, step)

    def drop(*arguments: Any, **options: Any) -> Any:
        made = done(*arguments, **options)
        if made is not None:
            shard.drop(A)
        return made

    monkeypatch.setattr(maintenance, step, drop)
    assert maintain(shard)
    assert shard.state_ids() == []
    assert maintain(opened(tmp_path))
    assert not (runs := (tmp_path / "runs")).exists() or not list(runs.glob("*.run"))


def test_a_thread_maintains_beside_the_writer(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    maintainer = Maintainer()
    try:
        for batch in range(40):
            with shard.transaction([A], Stamp(1, batch)) as tx:
                write(tx, SUMMED, [(key, 0, 1) for key in range(20)])
            maintainer.after(shard)
    finally:
        maintainer.close()
    assert not maintainer.errors
    assert found(shard.snapshot(), SUMMED) == [(key, 0, 40, 1) for key in range(20)]
    assert shard.refresh().manifest.version > 3


def test_a_thread_that_fails_stops_a_writer_that_is_far_ahead(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    with shard.transaction([A], Stamp(1, 0)) as tx:
        write(tx, SUMMED, [(1, 0, 1)])
    with shard.transaction([A], Stamp(1, 1)):
        pass
    (tmp_path / "runs").write_text("in the way of the folder")
    maintainer = Maintainer()
    try:
        with pytest.raises(Transient, match="File exists"):
            maintainer.after(shard)
        (tmp_path / "runs").unlink()
        maintainer.after(shard)
    finally:
        maintainer.close()
    assert not maintainer.errors
    assert found(shard.snapshot(), SUMMED) == [(1, 0, 1, 1)]
