"""Subjects of commits read `area: imperative`, since the rule came."""

from __future__ import annotations

import re
import subprocess

from tests.house.sources import ROOT

SINCE = "5d984d954375f95442d30d64ff666cf6827b02a4"
"""The last commit before the rule."""
SUBJECT = re.compile(r"^[a-z][a-z0-9 ,/'._-]*: [a-z`@\"'\d].{3,}[^.]$")
LONGEST = 100


def subjects() -> list[str]:
    """Return the subjects of the commits since the rule; none where the history is not there (an archive, a shallow clone)."""
    known = subprocess.run(["git", "-C", str(ROOT), "cat-file", "-e", SINCE], capture_output=True, check=False)
    if known.returncode:
        return []
    command = ["git", "-C", str(ROOT), "log", "--no-merges", "--format=%s", f"{SINCE}..HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_subjects_name_the_area_and_what_to_do() -> None:
    assert [subject for subject in subjects() if not SUBJECT.match(subject) or len(subject) > LONGEST] == []


def test_the_rule_tells_subjects_apart() -> None:
    assert SUBJECT.match("tiles: keep a row that ends after it left its window")
    assert not SUBJECT.match("How long rows count in a window is said by the tiles alone")
    assert not SUBJECT.match("Figures of a run")
