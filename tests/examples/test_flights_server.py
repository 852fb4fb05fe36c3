"""The demo waits for umbel without a busy loop, says so, and shows what it logged if it does not start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from examples.flights import server as module
from examples.flights.server import Server


class Clock:
    """A clock that goes on only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def starting(answers: Any, path: Path, *, is_alive: bool = True) -> Any:
    """Return a server that is answered by a function of nothing."""
    server: Any = object.__new__(Server)
    server._process = SimpleNamespace(poll=lambda: None if is_alive else 1)
    server._http = SimpleNamespace(get=lambda _: answers())
    server.log = path / "umbel.log"
    server.log.write_text("umbel: a reason")
    return server


def test_it_waits_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, calls, said = Clock(), list[float](), list[str]()
    monkeypatch.setattr(module, "time", clock)

    def answer() -> httpx.Response:
        calls.append(clock.now)
        if clock.now < 10:
            raise httpx.ConnectError("refused")
        return httpx.Response(503 if clock.now < 200 else 200)

    starting(answer, tmp_path).wait_until_ready(said.append)
    assert clock.now >= 200
    assert len(calls) <= 2010, "ten times a second, also while it answers that it is not ready"
    assert [text.partition(" s now")[0] for text in said] == [
        f"umbel starts, for {n}" for n in (30, 60, 90, 120, 150, 180)
    ]


@pytest.mark.parametrize("is_alive", [True, False])
def test_it_gives_up_with_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_alive: bool) -> None:
    monkeypatch.setattr(module, "time", Clock())
    server = starting(lambda: httpx.Response(503), tmp_path, is_alive=is_alive)
    with pytest.raises(SystemExit, match=rf"umbel did not start in {900 if is_alive else 0} s; .*\numbel: a reason"):
        server.wait_until_ready()
