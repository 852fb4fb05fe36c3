from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from umbel.state import failpoints

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
