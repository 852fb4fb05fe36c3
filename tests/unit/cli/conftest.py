"""The command line in this process, its requests carried to a server in this process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.unit.serving import flights as definitions
from tests.unit.serving.conftest import DEPARTURES, Served, served_at
from umbel.cli.main import app
from umbel.client.connection import HttpConnection

FLIGHTS = definitions.__name__

Umbel = Callable[..., Result]


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _unchanged_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what a command changes in its process, which is that of later tests here."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    mask = os.umask(0o022)
    os.umask(mask)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    os.umask(mask)


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
    for served in connected(tmp_path_factory.mktemp("server")):
        served.log("departures", [*DEPARTURES, {"origin": "[red]x", "delay": "soon", "at": "x"}])
        served.process()
        yield served


def connected(folder: Path) -> Iterator[Served]:
    """Yield a server without rows, to which every request of the command line goes."""
    for served in served_at(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HttpConnection, "__init__", partialmethod(_connect, served))
            yield served


@contextmanager
def working(served: Served) -> Iterator[None]:
    """Process what comes, in a thread, for a `with` block."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(0.05):
            served.process()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        is_over.set()
        worker.join()


_made = HttpConnection.__init__


def _connect(transport: HttpConnection, served: Served, url: str, token: str, _: object = None) -> None:
    _made(transport, url, token, served.transport)
