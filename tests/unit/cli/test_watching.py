"""What is shown while everything runs."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from rich.console import Console

from tests.unit.serving.conftest import Served
from tests.unit.serving.flights import DATASETS, FEATURESETS
from umbel.api.commit import check_commit
from umbel.cli.example import query_example, some
from umbel.cli.watching import Rate, Watch
from umbel.definitions.records import Definitions
from umbel.processes.status import RUNNING, forget_status, write_status
from umbel.runtime.freshness import Lag
from umbel.types import dtypes

HOST = "127.0.0.1"


class Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """Return the port of something that says it is ready."""
    with HTTPServer((HOST, 0), Ready) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_it_says_once_when_everything_is_ready(server: Served, port: int) -> None:
    place, said = server.deployment, io.StringIO()
    forget_status(place.directory)
    watch = Watch(place, HOST, port)
    watch._console = Console(file=said, width=200)
    watch.look()
    assert said.getvalue() == ""
    write_status(place.directory, RUNNING)
    watch.look()
    watch.look()
    assert said.getvalue().count("ready after") == 1
    assert f"curl -s http://{HOST}:{port}/api/v1/query" in said.getvalue()
    forget_status(place.directory)


def test_a_terminal_gets_a_line(server: Served, port: int) -> None:
    watch = Watch(server.deployment, "0.0.0.0", port)
    line = watch._how(Lag(3, 2 << 20, 1.5))
    assert "3 rows, 2.0 MiB and 1.5 s behind" in line
    assert "rows/s" in line
    assert "dead letter" in line
    assert watch.url == f"http://{HOST}:{port}"
    assert Watch(server.deployment, "::1", port, "https").url == f"https://[::1]:{port}"
    assert Watch(server.deployment, "::", port).url == f"http://[::1]:{port}"


def test_a_failure_to_look_ends_nothing(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(server.deployment, HOST, 1)
    monkeypatch.setattr(watch, "_look", lambda: 1 / 0)
    watch.look()


def test_a_rate_is_that_of_the_last_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    instants = iter([0.0, 1.0, 2.0])
    monkeypatch.setattr("umbel.cli.watching.time.monotonic", lambda: next(instants))
    rate = Rate()
    assert [rate.of(rows) for rows in (100, 300, 500)] == [0.0, 200.0, 200.0]


def test_an_example_is_a_query_that_has_an_answer(server: Served) -> None:
    definitions = check_commit(DATASETS, FEATURESETS)
    path, body = query_example(definitions) or ("", {})
    assert (path, body["outputs"]) == ("/api/v1/query", ["Greeting"])
    origins = check_commit(DATASETS, FEATURESETS[:1])
    path, body = query_example(origins) or ("", {})
    assert server.post(path, body).status_code == 200
    path, body = query_example(check_commit(DATASETS, [])) or ("", {})
    assert server.post(path, body).json()["found"] == [False]
    assert query_example(Definitions({}, {})) is None


def test_some_value_of_each_type() -> None:
    assert [some(each()) for each in (dtypes.Int, dtypes.Str, dtypes.Bool)] == [1, "JFK", True]
