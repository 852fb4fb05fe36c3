"""Where a shop is backed up to."""

from __future__ import annotations

from pathlib import Path

import pytest

from umbel.runtime.recovery.repository import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.at(str(tmp_path / "backups"))
