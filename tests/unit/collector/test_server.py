"""The process of a collector: a disk that fails to sync or is full, and a file of keys that is broken."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from umbel.collector import server
from umbel.collector.connection import HttpRequest
from umbel.collector.responses import HttpResponse
from umbel.collector.service import CollectorService
from umbel.collector.settings import CollectorSettings
from umbel.runtime.limits import Limits
from umbel.state import disk


class Answers:
    """A connection that notes the answer."""

    def __init__(self) -> None:
        self.found: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()

    def answered(self, request: HttpRequest) -> None:
        assert request.response is not None
        self.found.set_result(request.response)


async def send(collector: CollectorService, body: bytes) -> HttpResponse:
    connection = Answers()
    request = HttpRequest(connection)  # type: ignore[arg-type]
    request.method, request.target, request.parts = b"POST", b"/api/v1/events/clicks", [body]
    refused = collector.admit(request)
    if refused is not None:
        return refused
    collector.take(request)
    return await connection.found


def test_a_failed_sync_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "EVERY", 0.01)
    collector = CollectorService(CollectorSettings(tmp_path), Limits())

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def run() -> list[int]:
        found = [await send(collector, b"{}")]
        stop = asyncio.Event()
        watching = asyncio.create_task(server._watch(collector, stop))
        monkeypatch.setattr(disk, "sync", fail)
        found.append(await send(collector, b"{}"))
        monkeypatch.undo()
        found.append(await send(collector, b"{}"))
        await asyncio.wait_for(stop.wait(), 60)
        watching.cancel()
        return [each.status for each in found]

    assert asyncio.run(run()) == [200, 429, 429]
    assert collector.broken == ["clicks"]
    collector.close()
    again = CollectorService(CollectorSettings(tmp_path), Limits())
    assert asyncio.run(send(again, b"{}")).status == 200
    again.close()


def test_a_full_disk_is_not_named_to_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    collector = CollectorService(CollectorSettings(tmp_path / "secret"), Limits())
    monkeypatch.setattr(disk, "write", fail)
    found = asyncio.run(send(collector, b"{}"))
    assert found.status == 429
    assert b"No space left on device" in found.body
    assert b"secret" not in found.body
    collector.close()


def test_a_broken_file_of_keys_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys, whole = tmp_path / "keys.toml", "[mobile]\nkey = 'a-long-random-text'\n"
    keys.write_text(whole)
    collector = CollectorService(CollectorSettings(tmp_path / "events", keys=keys), Limits())
    for text in ("[", whole, "[x]"):
        keys.write_text(text)
        for _ in range(3):
            collector.look()
    collector.close()
    first, second = (each.getMessage() for each in caplog.records)
    assert "cannot be read" in first
    assert "must be a table" in second
