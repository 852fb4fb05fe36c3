"""Limits that the environment sets."""

from __future__ import annotations

import pytest

from umbel.errors import InvalidValue
from umbel.runtime.limits import Limits


def test_the_environment_sets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Limits.from_environment() == Limits()
    monkeypatch.setenv("UMBEL_BACKLOG_BYTES", "2 GiB")
    monkeypatch.setenv("UMBEL_BACKLOG_AGE", "1h 30m")
    monkeypatch.setenv("UMBEL_DISK_RESERVE", "0")
    monkeypatch.setenv("UMBEL_STUCK_AFTER", " ")
    monkeypatch.setenv("UMBEL_DEAD_LETTERS_PER_REQUEST", "7")
    assert Limits.from_environment() == Limits(2 << 30, 5400.0, 0, dead_letters_per_request=7)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("UMBEL_BACKLOG_BYTES", "much"),
        ("UMBEL_BACKLOG_BYTES", "-1"),
        ("UMBEL_BACKLOG_AGE", "60"),
        ("UMBEL_STUCK_AFTER", "1 fortnight"),
        ("UMBEL_DEAD_LETTERS_PER_BATCH", "1.5"),
    ],
)
def test_a_wrong_one_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(InvalidValue, match=f"the environment variable {name} is '{text}'"):
        Limits.from_environment()
