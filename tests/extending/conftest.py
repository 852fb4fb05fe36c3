"""The package `umbel-extras`, installed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.extending.install import PACKAGE, install
from tests.extending.pages import Read
from tests.extending.shelves import Shelves, serving
from umbel.connectors.polling import stop_polling
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


@pytest.fixture
def server(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelves]:
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.syspath_prepend(str(PACKAGE))
    with serving() as shelves:
        yield shelves
        stop_polling(tmp_path)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, server: Shelves) -> Callable[[Read], Read]:
    """Replace `read` of the package's reader; return the one it has."""
    from umbel_extras.shelf import ShelfReader

    def replace(other: Read) -> Read:
        before: Read = ShelfReader.read
        monkeypatch.setattr(ShelfReader, "read", other)
        return before

    return replace
