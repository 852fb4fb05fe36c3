"""A shop that has sold some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.selling import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    made.sell()
    yield made
    made.deployed.close()
