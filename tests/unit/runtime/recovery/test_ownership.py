"""Repositories that are no place for the backups of a deployment."""

from __future__ import annotations

from pathlib import Path

import pytest

from umbel.errors import InvalidValue
from umbel.runtime.recovery.ownership import check_apart
from umbel.runtime.recovery.repository import Repository


@pytest.mark.parametrize(
    ("directory", "place"), [("link", "real/backups"), ("real", "link/backups"), ("link/umbel", "real")]
)
def test_a_link_does_not_hide_that_one_is_in_the_other(tmp_path: Path, directory: str, place: str) -> None:
    """Backups were lost with the folder that they were of."""
    (tmp_path / "real" / "umbel").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(InvalidValue, match="cannot be in"):
        check_apart(tmp_path / directory, Repository.at(str(tmp_path / place)))
    check_apart(tmp_path / directory, Repository.at(str(tmp_path / "backups")))
