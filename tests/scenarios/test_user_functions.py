"""User functions that raise, exit, crash, hang and swallow memory, in a worker: their rows are dead letters, all else goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.deployed import Deployed
from tests.misbehaving import FATAL, KINDS, definitions, events

DRAIN = """
import sys
from pathlib import Path
from umbel.runtime.batch import drain
from umbel.runtime.deployment import Deployment

drain(Deployment.at(Path(sys.argv[1])))
"""
LIMITS = {
    "UMBEL_FUNCTION_ROW_SECONDS": "0.5",
    "UMBEL_FUNCTION_BATCH_SECONDS": "6",
    "UMBEL_FUNCTION_MEMORY": "512",
}


def work(folder: Path, script: str = DRAIN) -> int:
    """Run the driver's part of a worker until it gets through, as a supervisor would; return how often it died."""
    environment = {**os.environ, **LIMITS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for deaths in range(5):
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder)], env=environment, capture_output=True, text=True, timeout=120
        )
        if not done.returncode:
            return deaths
    raise AssertionError(f"it does not get through: {done.returncode} {done.stderr}")


def reasons(deployed: Deployed, dataset: str) -> dict[str, str]:
    """Return the reason of each dead letter of a dataset, by what its row says."""
    letters = deployed.deployment.catalog.dead_letters(dataset)
    return {next(kind for kind in KINDS if f'"{kind}"' in each.raw.decode()): each.reason for each in letters}


def check(deployed: Deployed, good: Sequence[str], bad: Sequence[str]) -> None:
    assert sorted(deployed.changes("Acted")["what"]) == sorted(good)
    assert reasons(deployed, "Acted").keys() == set(bad)
    counts = deployed.deployment.catalog.counts()
    assert counts["Acted", "dead"] == len(bad)
    rows = deployed.lookup(
        "Calm", [{"id": n} for n in range(len(good) + len(bad))], [events("x")[0]["at"]] * (len(good) + len(bad))
    )
    assert all(row is None or row["events"] == 1 for row in rows)


ORDINARY = ("raise", "interrupt", "os_exit", "spin")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in ORDINARY else pytest.mark.nightly) for kind in KINDS]
)
def test_a_row_on_which_a_function_misbehaves_is_a_dead_letter(tmp_path: Path, kind: str) -> None:
    deployed = Deployed(tmp_path)
    deployed.commit(definitions())
    good = ["a", "bb", "ccc"] * 30
    deployed.log("events", events(*good[:50], kind, *good[50:]))
    deaths = work(tmp_path)
    assert deaths == (kind in FATAL and kind != "memory")
    check(deployed, good, [kind])
    assert deployed.deployment.catalog.counts()["Event", "rows"] == len(good) + 1
    (letter,) = deployed.deployment.catalog.dead_letters("Acted")
    expected = {
        "raise": "LookupError: no such thing",
        "exit": "SystemExit: 3",
        "interrupt": "KeyboardInterrupt",
        "cancel": "CancelledError: too late",
        "mute": "Mute: its text cannot be made: KeyError",
        "os_exit": "exit code 7",
        "abort": "SIGABRT",
        "segv": "SIGSEGV",
        "spin": "longer than 0.5 s",
        "memory": "more than",
        "limit": "exit code 1",
    }
    assert expected[kind] in letter.reason
    assert "Acted.act" in letter.position
    assert "lambda" in letter.position
    deployed.log("events", events("more", kind, first=200))
    assert work(tmp_path) == 0, "known for what it is"
    assert deployed.deployment.catalog.counts()["Acted", "dead"] == 2
    deployed.close()


@pytest.mark.parametrize(
    "where",
    ["late", "preproc", *(pytest.param(where, marks=pytest.mark.nightly) for where in ("filter", "transform"))],
)
def test_all_at_once_in_any_place(tmp_path: Path, where: str) -> None:
    deployed = Deployed(tmp_path)
    deployed.commit(definitions(where))
    good = [f"good {n}" for n in range(20)]
    deployed.log("events", events(*good[:10], *KINDS, *good[10:]))
    assert work(tmp_path) <= 1, "one death or one KeyboardInterrupt makes it a suspect, whatever else it does"
    check(deployed, good, KINDS)
    deployed.close()
