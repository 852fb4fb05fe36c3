"""Purges of a worker that is killed: the deployment recovers at every step, and a repetition finishes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from tests.deployed import Deployed
from tests.town import GONE, SECRET, START, Town, damage, filled, person, town, where
from umbel.catalog.purges import Purges

__all__ = ["filled", "town"]

CRASH = """
import sys
from pathlib import Path
from tests.deployed import Deployed
from umbel.runtime.batch import drain

drain(Deployed(Path(sys.argv[1])).deployment)
"""


def killed_at(folder: Path, turn: int) -> bool:
    """Run a worker that is killed at a failpoint; return False if it came to its end."""
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(folder)],
        env={**os.environ, "UMBEL_FAILPOINT": f"*:{turn}", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


def check_kills(town: Town, turns: Sequence[int]) -> int:
    """Kill the worker at each failpoint in turn; return the number of kills."""
    before = town.online(), town.offline()
    town.erase(GONE)
    town.deployed.close()
    origin, kills = town.folder, 0
    for turn in turns:
        town.folder = origin.with_name(f"killed-{turn}")
        shutil.copytree(origin, town.folder)
        was_killed = killed_at(town.folder, turn)
        kills += was_killed
        town.deployed = Deployed(town.folder)
        assert (town.online(), town.offline()) == before, turn  # the deployment recovers, in the middle of it
        town.process()
        assert (town.progress().error, Purges(town.deployed.deployment.catalog).is_open) == ("", False), turn
        assert [where(town.folder, text) for text in (SECRET, GONE)] == [[], []], turn
        assert (town.online(), town.offline()) == before, turn
        assert damage(town) == [], turn
        town.deployed.log("people", [person(GONE, 9, SECRET), person("new@example.com", 9)])
        town.process()
        at = START + timedelta(days=30)
        both = [{"email": each, "region": "eu"} for each in (GONE, "new@example.com")]
        assert [each is not None for each in town.deployed.lookup("People", both, [at] * 2)] == [False, True], turn
        town.deployed.close()
        shutil.rmtree(town.folder)
        if not was_killed:
            break
    town.deployed = Deployed(origin)
    return kills


def test_a_killed_purge_is_repeated(town: Town) -> None:
    turns = [3, 17, 31, 46]
    assert check_kills(town, turns) == len(turns)


@pytest.mark.nightly
def test_a_purge_can_be_killed_at_every_failpoint(town: Town) -> None:
    print("kills:", check_kills(town, range(1, 1000)))


def test_a_purge_erases_what_a_killed_compaction_had_begun(town: Town) -> None:
    """The library of the change logs lists no such files: the erased rows stayed in them."""
    month = next((town.folder / "changes").glob("*/_at_month=*"))
    (month / "part-00000-c000.zstd.parquet#1").write_text(SECRET)
    town.erase(GONE)
    town.process()
    assert where(town.folder, SECRET) == []
