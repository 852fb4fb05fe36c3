"""How clients find the token of a server of their own account, and send it nowhere else."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from umbel.client import Client
from umbel.client.connection import RequestFailed
from umbel.client.localtoken import local_server, publish, registry, token_of, withdraw


class Notes(BaseHTTPRequestHandler):
    """Answers 401 unless the token is `right`, and notes what it was sent."""

    def do_GET(self) -> None:
        self.sent.append(self.headers.get("Authorization"))
        body = b'{"branches": []}'
        self.send_response(200 if self.sent[-1] == "Bearer right" else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, list[str | None]]]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("UMBEL_TOKEN", raising=False)
    kind = type("Noting", (Notes,), {"sent": []})
    with HTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, kind.sent
        server.shutdown()


def test_a_client_finds_the_token_and_files_are_private(notes: tuple[int, list[str | None]], tmp_path: Path) -> None:
    port, sent = notes
    url = f"http://127.0.0.1:{port}"
    publish(url, "right", tmp_path)
    for name in (url, f"http://localhost:{port}", f"localhost:{port}"):
        assert Client(name).list_branches() == []
    assert sent == ["Bearer right"] * 3
    for path in (tmp_path / "token", registry() / f"{port}.json"):
        assert path.stat().st_mode & 0o777 == 0o600
    assert registry().stat().st_mode & 0o777 == 0o700
    withdraw(url, tmp_path)
    assert local_server(url) is None
    assert not (tmp_path / "token").exists()


def test_a_server_that_was_started_anew_has_another_token(notes: tuple[int, list[str | None]], tmp_path: Path) -> None:
    port, sent = notes
    client = Client(f"http://127.0.0.1:{port}")
    with pytest.raises(RequestFailed, match="401"):
        client.list_branches()
    publish(f"http://127.0.0.1:{port}", "left", tmp_path)
    with pytest.raises(RequestFailed, match="401"):
        client.list_branches()
    publish(f"http://127.0.0.1:{port}", "right", tmp_path)
    assert client.list_branches() == []
    assert sent == [None, None, "Bearer left", "Bearer left", "Bearer right"]


def test_a_token_that_is_passed_is_the_one_that_is_sent(
    notes: tuple[int, list[str | None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, sent = notes
    publish(f"http://127.0.0.1:{port}", "left", tmp_path)
    Client(f"http://127.0.0.1:{port}", "right").list_branches()
    monkeypatch.setenv("UMBEL_TOKEN", "right")
    Client(f"http://127.0.0.1:{port}").list_branches()
    assert sent == ["Bearer right"] * 2


def test_tokens_of_servers_that_have_ended_are_sent_to_nobody(
    notes: tuple[int, list[str | None]], tmp_path: Path
) -> None:
    port, sent = notes
    url = f"http://127.0.0.1:{port}"
    publish(url, "right", tmp_path)
    entry = registry() / f"{port}.json"
    noted = json.loads(entry.read_bytes())
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    for change in ({"process": child}, {"machine": "another"}, {"process": "x"}, {"more": 1}):
        entry.write_text(json.dumps({**noted, **change}))
        with pytest.raises(RequestFailed):
            Client(url).list_branches()
    assert set(sent) == {None}
    entry.write_text(json.dumps(noted))
    for other in (
        f"https://127.0.0.1:{port}",
        f"http://features.example:{port}",
        "http://127.0.0.1:1",
        "http://[x",
        "x",
    ):
        assert local_server(other) is None
    found = local_server(url)
    assert found is not None
    (tmp_path / "token").unlink()
    assert token_of(found) == ""
