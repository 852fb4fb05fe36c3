"""The load generator measures what a server takes, and no less when the server keeps it waiting."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.load import arrivals, share

PAUSE = 0.3


class Slow(BaseHTTPRequestHandler):
    """Answers at once, except that it does nothing at all for a while after the first twenty."""

    protocol_version = "HTTP/1.1"
    answered = 0
    alone = threading.Lock()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        with Slow.alone:
            Slow.answered += 1
            if Slow.answered == 20:
                time.sleep(PAUSE)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def slow_server() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def test_requests_that_could_not_be_sent_count_from_when_they_were_due(tmp_path: Path) -> None:
    (tmp_path / "bodies").write_bytes(b"{}\n[]\n")
    with slow_server() as port:
        command = [sys.executable, "-m", "benchmarks.load", str(port), str(tmp_path / "bodies"), "1", "2", "100"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    report = json.loads(done.stdout)
    assert (report["requests"], report["failures"]) == (100, 0)
    # some thirty requests were due in the pause; a generator that waits for answers would have seen one or two
    assert report["worst"] >= PAUSE * 1e3 * 0.9
    assert report["p99"] >= PAUSE * 1e3 * 0.8


@pytest.mark.parametrize("kind", ["even", "random"])
def test_as_many_are_due_as_were_requested(kind: str) -> None:
    instants = list(islice(arrivals(kind, 1000), 20_000))
    assert instants == sorted(instants)
    assert instants[-1] == pytest.approx(20, rel=0.05)


def test_shares() -> None:
    seconds = [number / 1000 for number in range(100)]
    assert [share(seconds, of) for of in (0.5, 0.99, 1.0)] == pytest.approx([50.0, 99.0, 99.0])
    assert share([], 0.99) == 0.0
