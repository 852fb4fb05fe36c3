"""The package `umbel-extras`, installed once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extending.install import PACKAGE, install
from umbel.expr.registry import FUNCTIONS


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which `umbel-extras` is installed."""
    return install(PACKAGE, tmp_path_factory.mktemp("installed") / "site")


@pytest.fixture
def _functions() -> Iterator[None]:
    """Forget the expression functions that a test registers."""
    before = dict(FUNCTIONS)
    yield
    FUNCTIONS.clear()
    FUNCTIONS.update(before)
