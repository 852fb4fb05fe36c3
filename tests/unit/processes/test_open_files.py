"""The limit of open files, and of connections among them."""

from __future__ import annotations

import logging
import resource
from typing import Any

import pytest

from umbel.processes.open_files import MOST, ConnectionLimit, most_connections, raise_limit

INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (1024, 524_288, MOST),
        (1024, 4096, 4096),
        (1024, INFINITE, MOST),
        (256, 256, 256),
        (1 << 20, 1 << 20, 1 << 20),
        (INFINITE, INFINITE, None),
    ],
)
def test_the_limit_is_raised(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int | None) -> None:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: found.append(limits))
    raise_limit()
    assert found == ([] if raised is None else [(raised, hard)])


def test_a_limit_that_the_system_refuses_is_raised_less(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []

    def refuse(_: int, limits: tuple[int, int]) -> None:
        if limits[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")
        found.append(limits[0])

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, INFINITE))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_limit()
    assert found == [10_240]


@pytest.mark.parametrize(("soft", "most"), [(64, 32), (1024, 512), (INFINITE, MOST // 2)])
def test_connections_leave_room_for_files(monkeypatch: pytest.MonkeyPatch, soft: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, INFINITE))
    assert most_connections() == most


def test_refused_connections_are_one_message(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Loop:
        seen: list[dict[str, Any]] = []  # noqa: RUF012  of one test

        def default_exception_handler(self, context: dict[str, Any]) -> None:
            self.seen.append(context)

    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    limit, loop = ConnectionLimit(logging.getLogger("test")), Loop()
    assert limit.admits(31)
    assert not caplog.records
    assert not any(limit.admits(32) for _ in range(1000))
    for _ in range(1000):
        limit.handle(loop, {"message": "socket.accept() out of system resource"})  # type: ignore[arg-type]
    assert [each.getMessage() for each in caplog.records] == [
        "connections are refused: at most 32 may be open; ulimit -n allows more"
    ]
    limit.handle(loop, other := {"message": "another error"})  # type: ignore[arg-type]
    assert loop.seen == [other]
