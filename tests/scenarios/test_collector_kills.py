"""A collector killed again and again, or without its folder: each answered event is there exactly once, no other twice."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.collecting import CollectorProcess, stored
from tests.deployed import wait_until
from tests.seeds import new_seed


@dataclass
class Clients:
    """Clients that send requests of their own, each until it is answered.

    Args:
        port: of the collector.
        generator: chooses sizes and pauses.
    """

    port: int
    generator: random.Random
    answered: list[int] = field(default_factory=list)
    retries: int = 0
    number: int = 0
    is_done: bool = False

    async def run(self, count: int) -> None:
        """Send until `is_done`, each request until it is answered."""
        await asyncio.gather(*(self._client() for _ in range(count)))

    async def _client(self) -> None:
        http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=30)
        while not self.is_done:
            events = [{"n": self.number + n} for n in range(self.generator.choice((1, 1, 1, 3, 50)))]
            self.number += len(events)
            is_lines = self.generator.random() < 0.3
            body = (
                "\n".join(map(json.dumps, events)) if is_lines else json.dumps(events if len(events) > 1 else events[0])
            )
            media = "application/x-ndjson" if is_lines else "application/json"
            headers = {"Content-Type": media, "Idempotency-Key": f"key-{events[0]['n']}"}
            while True:
                try:
                    found = await http.post("/api/v1/events/clicks", content=body, headers=headers)
                    assert found.status_code == 200, found.text
                    assert found.json()["accepted"] == len(events)
                    break
                except httpx.TransportError:
                    self.retries += 1
                    await http.aclose()
                    http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=30)
                    await asyncio.sleep(0.02)
            self.answered += [each["n"] for each in events]
            if self.generator.random() < 0.1:
                await asyncio.sleep(self.generator.random() / 50)
        await http.aclose()


async def killed(collector: CollectorProcess, kills: int, generator: random.Random) -> Clients:
    """Kill and restart the collector while clients send; return the clients, all of whose requests are answered."""
    clients = Clients(collector.port, generator)
    sending = asyncio.create_task(clients.run(generator.randint(1, 24)))
    for _ in range(kills):
        before, deadline = len(clients.answered), time.monotonic() + 60
        while len(clients.answered) == before:  # it has come up and answers
            assert time.monotonic() < deadline, collector.said
            assert not sending.done(), sending.result()
            await asyncio.sleep(0.005)
        await asyncio.sleep(generator.random() / 10)
        await asyncio.to_thread(collector.kill)
        collector.begin()
    clients.is_done = True
    await sending
    return clients


def check(folder: Path, kills: int, seed: int, *options: str) -> None:
    """Kill a collector so many times; compare what is stored with what was answered."""
    collector = CollectorProcess(folder, *options)
    collector.wait()
    clients = asyncio.run(killed(collector, kills, random.Random(seed)))
    collector.wait()
    assert collector.stop() == 0
    found = Counter(each["n"] for each in stored(collector.directory))
    assert len(clients.answered) == clients.number > 100
    assert clients.retries > 0
    assert found == Counter(range(clients.number)), f"seed {seed}"
    assert "Traceback" not in collector.said


@pytest.mark.parametrize(("processes", "kills"), [pytest.param("1", 12, marks=pytest.mark.nightly), ("2", 8)])
def test_nothing_is_lost_or_doubled(tmp_path: Path, processes: str, kills: int) -> None:
    check(tmp_path, kills, new_seed(), "--processes", processes)


@pytest.mark.nightly
@pytest.mark.parametrize("processes", ["1", "2"])
def test_nothing_is_lost_or_doubled_in_100_kills_each(tmp_path: Path, processes: str) -> None:
    check(tmp_path, 100, new_seed(), "--processes", processes)


def test_a_folder_that_is_gone_takes_no_events_and_is_not_ready(tmp_path: Path) -> None:
    """Each event was refused, and /readyz said "ready": a load balancer went on sending them there."""
    collector = CollectorProcess(tmp_path)
    collector.wait()
    assert collector.post({}).status_code == 200
    collector.directory.rename(tmp_path / "away")
    wait_until(lambda: collector.http.get("/readyz").status_code == 503, lambda: collector.said)
    assert "the folder of events cannot be used: No such file" in collector.http.get("/readyz").text
    refused = collector.post({})
    assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
    assert "its disk is there" in refused.json()["hint"]
    (tmp_path / "away").rename(collector.directory)
    wait_until(lambda: collector.post({}).status_code == 200, lambda: collector.said)
    assert collector.http.get("/readyz").status_code == 200
    collector.stop()
    assert len(stored(collector.directory)) == 2
