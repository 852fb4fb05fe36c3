"""The command line in this process, its requests carried to a server in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partialmethod

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.unit.serving import flights as definitions
from tests.unit.serving.conftest import DEPARTURES, Served, served_at
from umbel.cli.main import app
from umbel.client.transport import Transport

FLIGHTS = definitions.__name__

Umbel = Callable[..., Result]


@pytest.fixture
def umbel(monkeypatch: pytest.MonkeyPatch) -> Umbel:
    """Return what runs a command."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=input, catch_exceptions=True)

    return run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server to which every request of the command line goes."""
    for served in served_at(tmp_path_factory.mktemp("server")):
        served.log("departures", [*DEPARTURES, {"origin": "[red]x", "delay": "soon", "at": "x"}])
        served.process()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Transport, "__init__", partialmethod(_connect, served))
            yield served


_made = Transport.__init__


def _connect(transport: Transport, served: Served, url: str, token: str, _: object = None) -> None:
    _made(transport, url, token, served.transport)
