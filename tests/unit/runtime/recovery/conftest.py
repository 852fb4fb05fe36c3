"""A shop that is backed up, and where to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.selling import Shop
from umbel.runtime.recovery.repository import Repository


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    made.sell()
    yield made
    made.deployed.close()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.at(str(tmp_path / "backups"))
