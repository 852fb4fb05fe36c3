"""Limits that the environment sets."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path

import pytest

from umbel.errors import InvalidValue
from umbel.runtime.limits import Limits, disk_trouble


def test_the_environment_sets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Limits.from_environment() == Limits()
    monkeypatch.setenv("UMBEL_BACKLOG_BYTES", "2 GiB")
    monkeypatch.setenv("UMBEL_BACKLOG_AGE", "1h 30m")
    monkeypatch.setenv("UMBEL_DISK_RESERVE", "0")
    monkeypatch.setenv("UMBEL_STUCK_AFTER", " ")
    monkeypatch.setenv("UMBEL_DEAD_LETTERS_PER_REQUEST", "7")
    monkeypatch.setenv("UMBEL_MAX_AHEAD", "2h")
    monkeypatch.setenv("UMBEL_LATE_BYTES", "1MiB")
    bounds = {"max_ahead": 7_200_000_000, "late_bytes": 1 << 20}
    assert Limits.from_environment() == Limits(2 << 30, 5400.0, 0, dead_letters_per_request=7, **bounds)
    monkeypatch.setenv("UMBEL_MAX_AHEAD", "forever")
    assert Limits.from_environment().max_ahead is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("UMBEL_BACKLOG_BYTES", "much"),
        ("UMBEL_BACKLOG_BYTES", "-1"),
        ("UMBEL_BACKLOG_AGE", "60"),
        ("UMBEL_STUCK_AFTER", "1 fortnight"),
        ("UMBEL_DEAD_LETTERS_PER_BATCH", "1.5"),
        ("UMBEL_MAX_AHEAD", "90000y"),
        ("UMBEL_MAX_AHEAD", "-1"),
        ("UMBEL_LATE_BYTES", "much"),
    ],
)
def test_a_wrong_one_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(InvalidValue, match=f"the environment variable {name} is '{text}'"):
        Limits.from_environment()


def test_the_reference_has_them_all_with_their_defaults() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    for each in fields(Limits):
        name = f"UMBEL_{each.name.upper()}"
        row = re.search(rf"^\| `{name}` \| `(\w+)` \|", page, re.MULTILINE)
        assert row is not None, f"{name} is not in docs/reference/environment.md"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, row[1])
            assert Limits.from_environment() == Limits(), name


def test_a_disk_that_takes_no_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error Linux makes a file system read-only: each event was refused, and /readyz said "ready"."""
    assert disk_trouble(tmp_path, 0) == ("", "")
    assert disk_trouble(tmp_path, 1 << 60)[0].startswith("the disk is nearly full: ")
    assert disk_trouble(tmp_path / "gone", 0)[0] == "the folder of events cannot be used: No such file or directory"
    facts = [*os.statvfs(tmp_path)]
    facts[8] |= os.ST_RDONLY
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(facts))
    assert disk_trouble(tmp_path, 0)[0] == "the disk is read-only"
