from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.store_entries import Entries
from umbel.state import failpoints
from umbel.state.file import FileStore
from umbel.state.port import Stamp
from umbel.state.runs import files, writable_shard
from umbel.state.runs.shard import ShardOptions

SOURCE = Path(failpoints.__file__).parents[2]


@pytest.mark.parametrize(
    ("setting", "passed"), [("put:2", "begun put begun "), ("*:2", "begun "), ("put", "begun "), ("other:1", None)]
)
def test_the_environment_arms_a_death(setting: str, passed: str | None) -> None:
    program = """
from umbel.state.failpoints import reach
for _ in range(3):
    for name in ("begun", "put"):
        reach(name)
        print(name, end=" ", flush=True)
"""
    environment = {**os.environ, "UMBEL_FAILPOINT": setting, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if passed is None else -signal.SIGKILL)
    assert done.stdout == ("begun put " * 3 if passed is None else passed)


def test_an_action_runs_once_at_its_turn() -> None:
    ran: list[str] = []
    with failpoints.armed("put", 2, lambda: ran.append("put")):
        for name in ("put", "begun", "put", "put"):
            failpoints.reach(name)
            ran.append(name)
    assert ran == ["put", "begun", "put", "put", "put"]
    failpoints.reach("put")


def test_nothing_happens_unarmed() -> None:
    for name in failpoints.POINTS:
        failpoints.reach(name)


def test_every_name_is_one_that_a_store_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[str] = []
    for module in (writable_shard, files):
        monkeypatch.setattr(module, "reach", passed.append)
    store = FileStore(tmp_path, 1, ShardOptions(flush_bytes=1, fan=2))
    for batch in range(6):
        with store.transaction(0, ["o"], Stamp(1, batch)) as tx:
            Entries(tx, "o").put([b"k"], [b"v"])
    store.close()
    assert set(passed) == set(failpoints.POINTS)
    assert (passed[-1], passed.count("begun")) == ("before a removal", 6)
